package rule

import (
	"slices"
	"strings"
	"sync"

	"github.com/gaissmai/bart"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A Set holds all rules of a node. It is immutable.
type Set struct {
	rules []*Rule

	// Rules are found by host. The keys of exact are hosts, and those of suffixes are what follows "*."
	// in hosts. Both point into byHost, where the rules of a host are adjacent, so that a million hosts
	// cost a map of small values. everywhere has the rules without hosts.
	exact      map[string]span
	suffixes   map[string]span
	byHost     []*Rule
	everywhere []*Rule
	longest    int     // bytes of the longest key of suffixes
	malformed  []*Rule // those that apply to malformed requests

	headers map[string]bool // those that rules count by, as net/http spells them

	access *bart.Table[Access] // nil if both lists are empty
	hash   uint64              // of the text of the files

	hyphens strictyaml.Hyphens

	disabled    []*Rule // those with enabled: false
	overrides   map[*Rule]*overrides
	networkSets []*NetworkSet
	labelSets   []*LabelSet

	byID          func() []uint32         // indexes in rules, in the order of IDs; made on first use
	byFingerprint func() map[uint64]*Rule // made on first use
}

// Hyphens returns the keys of the files that are spelled with hyphens instead of underscores.
func (s *Set) Hyphens() strictyaml.Hyphens { return s.hyphens }

// Disabled returns the rules with enabled: false. They are not part of the set.
func (s *Set) Disabled() []*Rule { return s.disabled }

// A span is a part of Set.byHost.
type span struct{ from, to uint32 }

// newSet returns a set of rules. It keeps the slice. access may be nil.
func newSet(rules []*Rule, access *bart.Table[Access]) *Set {
	s := &Set{rules: rules, access: access, headers: map[string]bool{}}
	s.byID, s.byFingerprint = sync.OnceValue(s.sortByID), sync.OnceValue(s.indexFingerprints)
	for i, r := range rules {
		r.Index = i
		if len(r.Hosts) == 0 {
			s.everywhere = append(s.everywhere, r)
		}
		if r.Match.all() && len(r.Characteristics) == 1 && r.Characteristics[0].Kind == IP {
			s.malformed = append(s.malformed, r)
		}
		for c := range r.leaves() {
			switch c.Kind {
			case Header:
				s.headers[c.canonical] = true
			case Cookie:
				s.headers["Cookie"] = true
			}
		}
	}
	s.exact, s.suffixes = s.index(false), s.index(true)
	for suffix := range s.suffixes {
		s.longest = max(s.longest, len(suffix))
	}
	return s
}

// index appends the rules with hosts, or with wildcards, to byHost, grouped by host, and returns the place
// of each group.
func (s *Set) index(wildcards bool) map[string]span {
	at := map[string]span{}
	each := func(visit func(host string, r *Rule)) {
		for _, r := range s.rules {
			for _, h := range uncovered(r.Hosts) {
				if suffix, wildcard := strings.CutPrefix(h, "*."); wildcard == wildcards {
					visit(suffix, r)
				}
			}
		}
	}
	each(func(host string, _ *Rule) {
		at[host] = span{0, at[host].to + 1}
	})
	end := uint32(len(s.byHost))
	for host, count := range at {
		at[host] = span{end, end}
		end += count.to
	}
	s.byHost = append(s.byHost, make([]*Rule, int(end)-len(s.byHost))...)
	each(func(host string, r *Rule) {
		group := at[host]
		s.byHost[group.to] = r
		at[host] = span{group.from, group.to + 1}
	})
	return at
}

// uncovered returns hosts without those that a wildcard among them includes, so that a rule is found only
// once for a request.
func uncovered(hosts []string) []string {
	if len(hosts) < 2 {
		return hosts
	}
	wildcards := map[string]bool{}
	for _, h := range hosts {
		if suffix, ok := strings.CutPrefix(h, "*."); ok {
			wildcards[suffix] = true
		}
	}
	if len(wildcards) == 0 {
		return hosts
	}
	return slices.DeleteFunc(slices.Clone(hosts), func(h string) bool {
		_, suffix, more := strings.Cut(strings.TrimPrefix(h, "*."), ".")
		for ; more; _, suffix, more = strings.Cut(suffix, ".") {
			if wildcards[suffix] {
				return true
			}
		}
		return false
	})
}

// Hash returns a hash of the text of the files, by which nodes compare their rules. It is not keyed.
func (s *Set) Hash() uint64 { return s.hash }

// Rules returns all rules in the order of the files. The slice must not be modified.
func (s *Set) Rules() []*Rule { return s.rules }

// CountsHeader reports whether a rule counts by a header, named as net/http spells it.
func (s *Set) CountsHeader(name string) bool { return s.headers[name] }

// NamesHosts reports whether a rule of s names a host.
func (s *Set) NamesHosts() bool { return len(s.byHost) > 0 }

// Names reports whether a rule of s names host, which must be canonical, exactly or by a wildcard.
func (s *Set) Names(host string) bool {
	if _, ok := s.exact[host]; ok {
		return true
	}
	_, _, ok := s.wildcard(s.end(host))
	return ok
}

// end returns the end of host that suffixes can contain. Longer ends are not looked up, so that a host of
// a megabyte of dots costs no more than a name.
func (s *Set) end(host string) string {
	if s.longest == 0 {
		return ""
	}
	return host[max(0, len(host)-s.longest-1):]
}

// wildcard returns the rules of the longest wildcard that matches host, and the rest of host that shorter
// ones may match.
func (s *Set) wildcard(host string) (at span, rest string, ok bool) {
	for {
		dot := strings.IndexByte(host, '.')
		if dot < 0 {
			return span{}, "", false
		}
		host = host[dot+1:]
		if at, ok := s.suffixes[host]; ok {
			return at, host, true
		}
	}
}

// ReadsFields reports whether a rule looks at the header of requests.
func (s *Set) ReadsFields() bool { return len(s.headers) > 0 }

// Match appends to dst the rules that apply to req, each once, in no particular order. req must be
// canonical. Match allocates only to grow dst.
func (s *Set) Match(req *Request, dst []*Rule) []*Rule {
	if req.Malformed {
		return append(dst, s.malformed...)
	}
	if at, ok := s.exact[req.Host]; ok {
		dst = match(s.byHost[at.from:at.to], req, dst)
	}
	at, rest, ok := s.wildcard(s.end(req.Host))
	for ; ok; at, rest, ok = s.wildcard(rest) {
		dst = match(s.byHost[at.from:at.to], req, dst)
	}
	return match(s.everywhere, req, dst)
}

func match(rules []*Rule, req *Request, dst []*Rule) []*Rule {
	for _, r := range rules {
		if r.hasMethod(req.Method) && r.hasAddr(req.Addr) && r.matchPath(req) {
			dst = append(dst, r)
		}
	}
	return dst
}

// matchPath reports whether r matches a form in which an origin may read the path of req.
func (r *Rule) matchPath(req *Request) bool {
	if len(r.Paths) == 0 && len(r.Except) == 0 {
		return true
	}
	if !req.target.odd {
		return r.matchForm(req, trimSlash(req.target.decoded, r.PathSyntax))
	}
	for _, form := range req.target.read(r.PathSyntax) {
		if r.matchForm(req, form) {
			return true
		}
	}
	return false
}

// matchForm reports whether r matches req, and does not except it, if form is its path.
func (r *Rule) matchForm(req *Request, form string) bool {
	if !r.hasPath(form, r.PathSyntax) {
		return false
	}
	for i := range r.Except {
		if e := &r.Except[i]; e.hasHost(req.Host) && e.hasMethod(req.Method) && e.hasAddr(req.Addr) && e.hasPath(form, r.PathSyntax) {
			return false
		}
	}
	return true
}

// all reports whether m matches every request.
func (m *Match) all() bool {
	return len(m.Hosts) == 0 && len(m.Methods) == 0 && len(m.Paths) == 0 && len(m.Networks) == 0
}

// hasHost is for exceptions. Rules are found by host in the index of the Set.
func (m *Match) hasHost(host string) bool {
	return len(m.Hosts) == 0 || slices.ContainsFunc(m.Hosts, func(h string) bool {
		suffix, wildcard := strings.CutPrefix(h, "*")
		return h == host || wildcard && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	})
}

func (m *Match) hasMethod(method string) bool {
	return len(m.Methods) == 0 || slices.Contains(m.Methods, method)
}

func (m *Match) hasPath(form string, syntax PathSyntax) bool {
	for _, pattern := range m.Paths {
		if syntax.names(pattern, form) {
			return true
		}
	}
	return len(m.Paths) == 0
}
