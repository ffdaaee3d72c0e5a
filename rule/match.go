package rule

import (
	"net/netip"
	"slices"
	"strings"
)

// A Match matches the requests that are in each of its lists. An empty list means everything. Hosts are
// canonical, and paths are in the normal form of the rule's PathSyntax. "*." at the beginning of a host
// stands for one or more labels. "*" at the end of a path stands for anything, including slashes, and elsewhere for
// anything but slashes. A path that begins with "*" matches the last segment.
type Match struct {
	Hosts, Methods, Paths []string
	Networks              []*NetworkSet // at least one contains the client's address
	Conditions            []Condition   // all of them are met
}

// Empty reports whether m has only empty lists, so that it matches every request.
func (m *Match) Empty() bool {
	return len(m.Hosts) == 0 && len(m.Methods) == 0 && len(m.Paths) == 0 && len(m.Networks) == 0 && len(m.Conditions) == 0
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

func (m *Match) hasAddr(addr netip.Addr) bool {
	return len(m.Networks) == 0 || slices.ContainsFunc(m.Networks,
		func(s *NetworkSet) bool { return s.table.Contains(addr) })
}

// hasValues reports whether req meets the conditions of m. except says whether m is an exception.
func (m *Match) hasValues(req *Request, except bool) bool {
	for i := range m.Conditions {
		if !m.Conditions[i].holds(req, except) {
			return false
		}
	}
	return true
}

// AllMatches returns the match of r and its exceptions.
func (r *Rule) AllMatches() []Match { return append([]Match{r.Match}, r.Except...) }

// AllConditions returns all conditions of r and of its exceptions.
func (r *Rule) AllConditions() (all []Condition) {
	for _, m := range r.AllMatches() {
		all = append(all, m.Conditions...)
	}
	return all
}

// matches reports whether r, which has the host of req, applies to req.
func (r *Rule) matches(req *Request, wanted func(*Rule) bool) bool {
	return r.hasMethod(req.Method) && r.hasAddr(req.Addr) && (wanted == nil || wanted(r)) && r.hasValues(req, false) &&
		r.matchPath(req)
}

// lengthOfPaths returns the maximum length of an ordinary path that a pattern of r may match: an escape is 3 times as
// long as its byte, and so is the Kelvin sign, which may stand for the letter k.
func (r *Rule) lengthOfPaths() (bytes int) {
	for _, m := range r.AllMatches() {
		for _, pattern := range m.Paths {
			if strings.Contains(pattern, "*") {
				return MaxPath
			}
			bytes = max(bytes, 3*3*(len(pattern)+len("/")))
		}
	}
	return bytes
}

// matchPath reports whether r matches a form in which an origin may read the path of req.
func (r *Rule) matchPath(req *Request) bool {
	if len(r.Paths) == 0 && len(r.Except) == 0 {
		return true
	}
	if t := &req.target; !t.odd && len(t.sent) > r.longPath {
		return r.matchForm(req, "") // which no pattern matches either
	}
	alone := len(r.Paths) == 0 // such a rule matches most paths, by their first form
	return req.target.find(r.PathSyntax, alone, func(form string) bool { return r.matchForm(req, form) })
}

// matchForm reports whether r matches req without excepting it, given that form is its path.
func (r *Rule) matchForm(req *Request, form string) bool {
	if !r.hasPath(form, r.PathSyntax) {
		return false
	}
	for i := range r.Except {
		e := &r.Except[i]
		if e.hasHost(req.Host) && e.hasMethod(req.Method) && e.hasAddr(req.Addr) && e.hasPath(form, r.PathSyntax) &&
			e.hasValues(req, true) {
			return false
		}
	}
	return true
}

// HasClient reports whether r's networks contain addr, so that r can apply to requests from there.
func (r *Rule) HasClient(addr netip.Addr) bool { return r.hasAddr(addr.Unmap()) }

// Excepts reports whether an exception of r is for all requests from addr.
func (r *Rule) Excepts(addr netip.Addr) bool {
	return slices.ContainsFunc(r.Except, func(e Match) bool {
		return len(e.Hosts)+len(e.Methods)+len(e.Paths)+len(e.Conditions) == 0 && e.hasAddr(addr.Unmap())
	})
}
