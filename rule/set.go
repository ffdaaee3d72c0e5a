package rule

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/gaissmai/bart"
)

// A Set holds all rules of a node. It is immutable.
type Set struct {
	rules []*Rule

	// Rules are found by host, in chains. first maps a host, or what follows the star of a wildcard, to the index in
	// byHost of its first rule; each link there has the index of the next one. Index 0 is unused and ends a chain. A
	// million hosts then need only a map of small values.
	first      map[string]uint32
	byHost     []link
	longest    int     // bytes of the longest wildcard, without its star
	everywhere []*Rule // those without hosts
	malformed  []*Rule // those that apply to malformed requests

	fields [][]string // names of the header fields that rules look at, as net/http spells them, by length

	access bart.Table[Access]
	hash   uint64

	byID          func() map[string]*Rule // made on first use
	byFingerprint func() map[uint64]*Rule // made on first use
}

// A link is a rule in a chain of those with the same host.
type link struct {
	rule *Rule
	next uint32
}

// NewSet returns a Set of rules with unique IDs, which must not be modified afterwards, and of the allow and deny
// lists. It sets the Index of each rule. For hash, see [Set.Hash].
func NewSet(rules []*Rule, lists map[netip.Prefix]Access, hash uint64) *Set {
	s := &Set{
		rules: rules, hash: hash, first: map[string]uint32{},
		byID:          index(rules, func(r *Rule) string { return r.ID }),
		byFingerprint: index(rules, (*Rule).Fingerprint),
	}
	for prefix, access := range lists {
		s.access.Insert(prefix, access)
	}
	hosts := 0
	for i, r := range s.rules {
		r.Index, r.fingerprint, r.longPath = i, r.Fingerprint(), r.lengthOfPaths()
		plans, _ := r.Overridden()
		for _, plan := range plans {
			plan.Index, plan.fingerprint = i, r.fingerprint
		}
		hosts += len(r.Hosts)
		if len(r.Hosts) == 0 {
			s.everywhere = append(s.everywhere, r)
		}
		if r.Match.Empty() && len(r.Characteristics) == 1 && r.Characteristics[0].Kind == IP {
			s.malformed = append(s.malformed, r)
		}
		for c := range r.Leaves() {
			s.use(c)
		}
		for _, c := range r.AllConditions() {
			s.use(&c.Characteristic)
		}
	}
	s.byHost = make([]link, 1, hosts+1)
	for _, r := range slices.Backward(s.rules) {
		for _, host := range r.Hosts {
			suffix, wildcard := strings.CutPrefix(host, "*")
			if wildcard {
				s.longest = max(s.longest, len(suffix))
			}
			s.byHost = append(s.byHost, link{r, s.first[suffix]})
			s.first[suffix] = uint32(len(s.byHost) - 1)
		}
	}
	return s
}

// index returns a function that returns a map of the rules by key. Its first call makes the map.
func index[K comparable](rules []*Rule, key func(*Rule) K) func() map[K]*Rule {
	return sync.OnceValue(func() map[K]*Rule {
		by := make(map[K]*Rule, len(rules))
		for _, r := range rules {
			by[key(r)] = r
		}
		return by
	})
}

// Hash returns a hash of the text of the files, by which nodes compare their rules. It is not keyed.
func (s *Set) Hash() uint64 { return s.hash }

// Rules returns all rules in the order of the files. The slice must not be modified.
func (s *Set) Rules() []*Rule { return s.rules }

// use notes the field that c is about.
func (s *Set) use(c *Characteristic) {
	name := c.field
	if name == "" {
		return
	}
	s.fields = append(s.fields, make([][]string, max(0, len(name)+1-len(s.fields)))...)
	if same := s.fields[len(name)]; !slices.Contains(same, name) {
		s.fields[len(name)] = append(same, name)
	}
}

// AddField adds a field of a request to header, as net/http spells it, if a rule of s looks at it. A name that CGI
// cannot distinguish from that of such a field, as X_Api_Key from X-Api-Key, is added under the field's name: PHP,
// WSGI and Rack read both. Once a name has more lines than rules read, further ones make no difference and are
// dropped, except cookies: a client may send each in a line of its own.
func (s *Set) AddField(header map[string][]string, name, value string) {
	if len(name) >= len(s.fields) {
		return
	}
	for _, used := range s.fields[len(name)] {
		if lines := header[used]; (len(lines) <= maxPairs || used == "Cookie") && cgiConfuses(used, name) {
			header[used] = append(lines, value)
		}
	}
}

// Confuses reports whether CGI reads a field called name as one that a rule of s looks at, although no rule looks at
// that name itself.
func (s *Set) Confuses(name string) (confuses bool) {
	if len(name) >= len(s.fields) {
		return false
	}
	for _, used := range s.fields[len(name)] {
		if strings.EqualFold(used, name) {
			return false
		}
		confuses = confuses || cgiConfuses(used, name)
	}
	return confuses
}

// cgiConfuses reports whether CGI cannot distinguish two names of the same length: it ignores case, and reads all bytes
// other than letters and digits as underscores.
func cgiConfuses(a, b string) bool {
	for i := range len(a) {
		if a[i]|0x20 != b[i]|0x20 && (isAlphanumeric(a[i]) || isAlphanumeric(b[i])) {
			return false
		}
	}
	return true
}

// NamesHosts reports whether a rule of s names a host.
func (s *Set) NamesHosts() bool { return len(s.first) > 0 }

// Names reports whether a rule of s names host, which must be canonical, exactly or by a wildcard.
func (s *Set) Names(host string) bool {
	for ; host != ""; host = s.parent(host) {
		if s.first[host] != 0 {
			return true
		}
	}
	return false
}

// parent returns the longest proper suffix of a nonempty host that a wildcard may name, or "". It skips
// suffixes longer than any wildcard, so that a megabyte of dots costs no more than an ordinary name.
func (s *Set) parent(host string) string {
	if s.longest == 0 {
		return ""
	}
	host = host[max(1, len(host)-s.longest):]
	dot := strings.IndexByte(host, '.')
	if dot < 0 {
		return ""
	}
	return host[dot:]
}

// ReadsFields reports whether a rule looks at the header of requests.
func (s *Set) ReadsFields() bool { return len(s.fields) > 0 }

// Match appends to dst the rules that apply to req, each once, in no particular order. req must be
// canonical. Match allocates only to grow dst.
func (s *Set) Match(req *Request, dst []*Rule) []*Rule { return s.MatchOf(nil, req, dst) }

// MatchOf is like Match, but ignores rules for which wanted returns false, and does not read the path for them. It
// ignores none if wanted is nil or req is malformed.
func (s *Set) MatchOf(wanted func(*Rule) bool, req *Request, dst []*Rule) []*Rule {
	if req.Malformed {
		return append(dst, s.malformed...)
	}
	req.searched = 0
	before := len(dst)
	for host := req.Host; host != ""; host = s.parent(host) {
		for i := s.first[host]; i != 0; i = s.byHost[i].next {
			r := s.byHost[i].rule
			again := len(r.Hosts) > 1 && slices.Contains(dst[before:], r)
			if !again && r.matches(req, wanted) {
				dst = append(dst, r)
			}
		}
	}
	for _, r := range s.everywhere {
		if r.matches(req, wanted) {
			dst = append(dst, r)
		}
	}
	return dst
}

// Current returns the rule of s with the ID and the characteristics of r, which may belong to an older set. It
// returns nil if s has no such rule. A rule with the limits of a key keeps them until the key's next request: see
// [Rule.Override].
func (s *Set) Current(r *Rule) *Rule {
	base := r.Base()
	if base.Index < len(s.rules) && s.rules[base.Index] == base {
		return r
	}
	now := s.ByFingerprint(r.Fingerprint())
	if r != base && now != nil && now.Overrides != "" {
		return r
	}
	return now
}

// Rule returns the rule with an ID, or nil.
func (s *Set) Rule(id string) *Rule {
	if len(s.rules) == 0 {
		return nil
	}
	return s.byID()[id]
}

// Fingerprint returns a hash of r's ID and characteristics, which identifies r in messages with fields of fixed size.
// It is neither 0 nor 1, which have other meanings in records.
func (r *Rule) Fingerprint() uint64 {
	if r.fingerprint != 0 {
		return r.fingerprint
	}
	b := appendString(nil, r.ID)
	for _, c := range r.Characteristics {
		b = appendString(append(b, byte(c.Kind)), c.Name)
	}
	return max(2, xxhash.Sum64(b))
}

// ByFingerprint returns the rule with a fingerprint, or nil if no rule has it.
func (s *Set) ByFingerprint(fingerprint uint64) *Rule {
	if len(s.rules) == 0 {
		return nil
	}
	return s.byFingerprint()[fingerprint]
}
