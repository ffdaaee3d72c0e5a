package translate

// nginx's locations: which of them handles a request, and the rule for each.

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
)

type location struct {
	*directive
	kind     string // "", =, ^~, ~, ~* or @
	path     string // except for a regular expression
	order    int    // among those of the server
	patterns []string
	broader  bool // patterns match more than the location does
	ok       bool // patterns are valid
	level    level
	outer    *location // the block around it
	logs     prose.Phrases
	rule     draft // for its requests, without a limit
	covered  bool  // the rule of another location counts them
}

func (l *location) isRegex() bool { return strings.HasPrefix(l.kind, "~") }

// isClosed reports whether nginx tries no regular expression after it has found l.
func (l *location) isClosed() bool { return l.kind == "=" || l.kind == "^~" }

// addLocation adds l, whose settings are those of its block and of the outer level, and the locations within it.
func (n *nginx) addLocation(s *server, l *location, outer level) {
	inherited := n.inherit(outer, l.directive)
	l.level = inherited
	first := l.own("return", "rewrite", "if", "break")
	returns := len(first) > 0 && first[0].name == "return"
	s.returns = s.returns || returns && l == s.root
	if hidden := l.kind == "@" || len(l.own("internal")) > 0; hidden || returns || s.returns {
		if hidden && l.level.counts != "" && l.level.counts != outer.counts {
			n.uncovered(l, "the limits of %s, which only internal redirects reach: %s", l.source(), sources(l.level.limits))
		}
		l.level.limits, l.level.counts = nil, ""
	}
	if l.kind == "@" {
		s.named = append(s.named, l)
	} else {
		l.order = len(s.locations)
		s.locations = append(s.locations, l)
	}
	for _, d := range l.own("location") {
		n.addLocation(s, s.newLocation(d, l), inherited)
	}
}

var locationArgs = regexp.MustCompile(`(?s)^(=|\^~|~\*|~|@|` + segments + `|) ?(.+)$`)

// segments is the kind of locations that an Ingress has for whole segments: /a/ has also the path /a.
const segments = "Prefix"

func (s *server) newLocation(d *directive, outer *location) *location {
	m := locationArgs.FindStringSubmatch(strings.Join(d.args, " "))
	require(m != nil && len(d.args) <= 2, d,
		"write location [= | ~ | ~* | ^~] URI", "location has %d arguments", len(d.args))
	l := &location{directive: d, kind: m[1], path: m[2], outer: outer}
	switch l.kind {
	case "@":
		return l
	case "~", "~*":
		l.patterns, l.broader, l.ok = patternsOf(l.path)
		l.ok = l.ok && expressible(byPath, l.patterns...)
		l.path = ""
		return l
	case "=":
		l.patterns = []string{l.path}
	case segments:
		l.kind, l.patterns = "", []string{l.path + "*", strings.TrimSuffix(l.path, "/")}
	default:
		l.patterns = []string{l.path + "*"}
	}
	l.ok = !strings.Contains(l.path, "*") && expressible(byPath, l.patterns...)
	id := strings.TrimPrefix(l.kind, "^~") + l.path
	if o := s.byPath[id]; o != nil && o.outer == outer {
		fail(d, fmt.Sprintf("the other one is at %v", o.position), "%s is a duplicate", d.source())
	}
	s.byPath[id] = l
	return l
}

// longest returns the location with the longest prefix of path.
func (s *server) longest(path string) *location {
	for i := len(path); i > 0; i-- {
		if l := s.byPath[path[:i]]; l != nil {
			return l
		}
	}
	return s.byPath["/"]
}

// precedes reports whether nginx prefers l to o for paths of both.
func (l *location) precedes(o *location) bool {
	switch {
	case l.isRegex() && o.isRegex():
		return l.order < o.order
	case l.isRegex():
		return !o.isClosed()
	case o.isRegex():
		return l.isClosed()
	}
	within := strings.HasPrefix(l.path, strings.TrimSuffix(o.path, "/")) // one of segments has this path, too
	return within && o.kind != "=" && (l.kind == "=" || len(l.path) > len(o.path))
}

// includes reports whether l has all paths of pattern.
func (l *location) includes(pattern string) bool {
	return slices.ContainsFunc(l.patterns, func(p string) bool { return includes(p, pattern) })
}

// divide divides the requests among the rules of the locations. Each has its paths, except those of locations with
// other limits.
func (s *server) divide() {
	widest := slices.SortedStableFunc(slices.Values(s.locations), func(a, b *location) int {
		return len(a.path) - len(b.path)
	})
	for _, l := range s.locations {
		r := &l.rule
		r.reading, r.anyCase = "resolved", l.kind == "~*"
		if !l.includes("/*") {
			r.match[byPath] = slices.Clip(l.patterns)
		}
		r.logs.AddIf(l.broader, "%v matches fewer paths than the rule", l)
		for _, m := range widest {
			if m.level.counts != l.level.counts && m.precedes(l) {
				l.except(m)
			}
		}
		for _, d := range l.level.errors {
			r.notes.AddIf(slices.Contains(d.args, strconv.Itoa(cmp.Or(l.level.status, 503))),
				"%v replaces nginx's answer to refused requests; edge ignores it", d)
		}
	}
	for _, l := range s.locations {
		for _, o := range s.locations {
			if o.covers(l) {
				o.logs = append(o.logs, l.logs...)
				l.covered = l.covered || o.order < l.order || !l.covers(o)
			}
		}
	}
	for _, l := range s.locations {
		l.rule.logs = unique(append(l.logs, l.rule.logs...))
	}
}

// except excepts the paths of m, which precedes l, from the rule of l.
func (l *location) except(m *location) {
	r := &l.rule
	isExcepted := func(q string) bool {
		return slices.ContainsFunc(r.except[byPath], func(e string) bool { return includes(e, q) })
	}
	if !m.ok {
		r.logs.AddIf(m.isRegex() || l.includes(m.patterns[0]) && !isExcepted(m.patterns[0]),
			"nginx handles requests for %v without this limit; rules cannot except such paths", m)
		return
	}
	for _, q := range m.patterns {
		narrower := slices.ContainsFunc(l.patterns, func(p string) bool { return p != q && includes(p, q) })
		within := slices.ContainsFunc(l.patterns, func(p string) bool { return includes(q, p) })
		beside := slices.ContainsFunc(l.patterns, func(p string) bool { return overlaps(p, q) })
		switch {
		case isExcepted(q):
		case narrower || beside && !within:
			r.except[byPath] = append(r.except[byPath], q)
			r.notes.AddIf(m.broader || m.kind == "~*" && !r.anyCase, "%v matches other paths than this rule excepts", m)
		case within:
			r.logs.Add("nginx handles such requests in %v", m)
		}
	}
}

// covers reports whether the rule of l counts all requests of o, since o has the same limits and is within its paths.
func (l *location) covers(o *location) bool {
	switch {
	case l == o || l.level.counts == "" || l.level.counts != o.level.counts:
		return false
	case !o.ok:
		return o.outer == l
	case o.rule.anyCase && !l.rule.anyCase && !l.includes("/*"):
		return false
	}
	return l.ok && len(l.rule.logs) == 0 && !slices.ContainsFunc(o.patterns, func(p string) bool {
		return !l.includes(p) || slices.ContainsFunc(l.rule.except[byPath], func(e string) bool {
			return includes(e, p) || overlaps(e, p) && !slices.Contains(o.rule.except[byPath], e)
		})
	})
}
