package rule

// What a rule's match says: hosts, methods, paths.

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// match reads what a rule concerns.
func (r *reader) match(n *yaml.Node, rule *Rule) {
	draft := matchDraft{Rule: rule}
	r.mapping(n, "match", "write match: {hosts: [example.com], methods: [POST], paths: [/login]}", r.matchFields(&draft))
	if len(rule.Paths) == 0 {
		return
	}
	// How the rule reads paths is known now.
	if !rule.PathSyntax.ExactParameters {
		for _, each := range resolve(draft.paths).Content {
			if path := resolve(each).Value; strings.Contains(path, ";") {
				r.fail(each, "set path_parameters: exact beside paths; by default what follows a semicolon is ignored", "%s matches no request", quote(path))
			}
		}
	}
	normal, seen := rule.Paths[:0], make(map[string]bool, len(rule.Paths))
	for _, path := range rule.Paths {
		if path = rule.PathSyntax.normalPattern(path); !seen[path] {
			normal, seen[path] = append(normal, path), true
		}
	}
	rule.Paths = r.internList(normal)
}

// A matchDraft is a match as a rules file writes it.
type matchDraft struct {
	*Rule
	paths *yaml.Node // the list of paths
}

// The ways to treat what some origins ignore of a path.
const (
	ignore = iota
	exact
)

var exactNames = [...]string{ignore: "ignore", exact: "exact"}

// matchFields are the keys of a match; they read into rule.
func (r *reader) matchFields(rule *matchDraft) []Field {
	exactField := func(name string, into *bool) Field {
		return Field{name, "", func(n *yaml.Node) { *into = r.choice(n, name, exactNames[:]) == exact }}
	}
	return []Field{
		{"hosts", "", func(n *yaml.Node) {
			rule.Hosts = r.matchList(n, "host", "[example.com]", r.host)
			if len(rule.Hosts) > 1 { // a single host is mostly a rule's own
				rule.Hosts = r.internList(rule.Hosts)
			}
		}},
		{"methods", "", func(n *yaml.Node) { rule.Methods = r.internList(r.matchList(n, "method", "[POST]", r.method)) }},
		{"paths", "", func(n *yaml.Node) { rule.Paths, rule.paths = r.matchList(n, "path", "[/login]", r.path), n }},
		exactField("path_case", &rule.PathSyntax.ExactCase),
		exactField("path_trailing_slash", &rule.PathSyntax.ExactSlash),
		exactField("path_parameters", &rule.PathSyntax.ExactParameters),
		{"path_reading", "", func(n *yaml.Node) {
			rule.PathSyntax.Reading = PathReading(max(r.choice(n, "path_reading", readingNames[:]), 0))
		}},
	}
}

func (r *reader) internList(list []string) []string {
	return intern(r.lists, fmt.Sprintf("%q", list), list)
}

// matchList reads a list of strings, each a noun as check returns it.
func (r *reader) matchList(n *yaml.Node, noun, example string, check func(*yaml.Node, string) (string, bool)) []string {
	what := noun + "s"
	nodes, _ := r.sequence(n, what, "write a list: "+example, "leave "+what+" out to match every "+noun)
	list := make([]string, 0, len(nodes))
	var index map[string]bool // of a long list
	if len(nodes) > 16 {
		index = make(map[string]bool, len(nodes))
	}
	for _, each := range nodes {
		text, ok := r.text(each, noun)
		if ok {
			text, ok = check(each, text)
		}
		switch {
		case !ok:
		case index[text] || index == nil && slices.Contains(list, text):
			r.fail(each, "leave one of them out", "%s is in %s twice", quote(text), what)
		default:
			list = append(list, text)
			if index != nil {
				index[text] = true
			}
		}
	}
	return list
}

// host checks a host and returns it in canonical form.
func (r *reader) host(n *yaml.Node, host string) (string, bool) {
	name, wildcard := strings.CutPrefix(lower(strings.TrimSuffix(withoutPort(host), ".")), "*.")
	hint := ""
	switch addr, err := netip.ParseAddr(host); {
	case host == "*":
		hint = "leave hosts out to match every host"
	case err == nil && addr.Is6():
		hint = fmt.Sprintf("write an IPv6 address in brackets: [%s]", host)
	case strings.Contains(host, "/"):
		hint = "write the host alone, without scheme and path"
	case withoutPort(host) != host:
		hint = "leave the port out: a rule concerns every port of a host"
	case strings.ContainsFunc(name, func(c rune) bool { return c > 127 }):
		hint = "write an internationalised name as browsers send it, in its xn-- form"
	case strings.Contains(name, "*"):
		hint = `"*." at the beginning stands for any subdomain; there is no other wildcard`
	case strings.HasPrefix(name, ".") && isHostname(name[1:]):
		hint = fmt.Sprintf("did you mean %q?", "*"+name)
	case isHostname(name) || !wildcard && isBracketed(name):
		return canonicalHost(host), true
	default:
		hint = `write a name such as example.com or "*.example.com", or an address`
	}
	r.fail(n, hint, "%s is not a host", quote(host))
	return "", false
}

// isHostname reports whether s is a name in lower case, or an IPv4 address.
func isHostname(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return len(s) <= maxHost
}

// isBracketed reports whether s is an IPv6 address as hosts have it.
func isBracketed(s string) bool {
	inner, ok := strings.CutSuffix(s, "]")
	inner, open := strings.CutPrefix(inner, "[")
	addr, err := netip.ParseAddr(inner)
	return ok && open && err == nil && addr.Is6() && addr.Zone() == ""
}

func (r *reader) method(n *yaml.Node, method string) (string, bool) {
	switch {
	case !isToken(method):
		r.fail(n, "write a method such as GET or POST", "%s is not a method", quote(method))
	case method != strings.ToUpper(method):
		r.fail(n, fmt.Sprintf("did you mean %s? methods are told apart by case", strings.ToUpper(method)), "%s is not a method", quote(method))
	default:
		return method, true
	}
	return "", false
}

// path checks a path. It must be canonical already, so that the file shows what is
// matched.
func (r *reader) path(n *yaml.Node, path string) (string, bool) {
	prefix, wildcard := strings.CutSuffix(path, "*")
	rest := ""
	if wildcard {
		rest = "x" // so that /a/.* may stand for all files that begin with a dot
	}
	canonical := canonicalPath(prefix + rest)
	switch {
	case path == "*" || prefix+rest == canonical && !strings.ContainsAny(prefix, "*?#"):
		return path, true
	case !strings.HasPrefix(path, "/"):
		r.fail(n, fmt.Sprintf("a path begins with a slash: did you mean %s?", quote("/"+path)), "%s is no path", quote(path))
	case strings.ContainsAny(prefix, "?#"):
		r.fail(n, "write a path without query and fragment", "%s is no path", quote(path))
	case strings.Contains(prefix, "*"):
		r.fail(n, "a * at the end stands for anything; there is no other wildcard", "%s is no path", quote(path))
	default:
		r.fail(n, "write it as it is matched, decoded and without empty and dot segments: "+quote(strings.TrimSuffix(canonical, rest)+path[len(prefix):]), "%s matches no request", quote(path))
	}
	return "", false
}
