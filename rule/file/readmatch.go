package file

// Reading a rule's match and exceptions: hosts, methods, paths, networks, conditions.

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// match reads which requests a rule applies to, and how paths are read.
func (r *reader) match(n *yaml.Node, to *rule.Rule) {
	var paths *yaml.Node // which depend on the path syntax
	syntax := &to.PathSyntax
	exact := func(name string, to *bool) strictyaml.Field {
		return strictyaml.Field{Name: name, Read: func(n *yaml.Node) {
			*to = r.Choice(n, name, []string{"ignore", "exact"}) == 1
		}}
	}
	r.Mapping(n, "match", "write match: {hosts: [example.com], methods: [POST], paths: [/login]}",
		append(r.matchFields(&to.Match, func(n *yaml.Node) { paths = n }),
			exact("path_case", &syntax.ExactCase),
			exact("path_trailing_slash", &syntax.ExactSlash),
			exact("path_parameters", &syntax.ExactParameters),
			strictyaml.Word(&r.Document, "path_reading", &syntax.Reading, rule.ReadingNames())))
	if paths != nil {
		to.Paths = r.pathList(paths, *syntax)
	}
}

// except reads one exception, or a list of them. The path syntax of the rule is known.
func (r *reader) except(n *yaml.Node, to *rule.Rule) {
	const hint = "write except: {paths: [/health]}"
	nodes := []*yaml.Node{n}
	if strictyaml.IsSequence(n) {
		nodes = r.Sequence(n, "except", hint, "omit except to exempt nothing")
	}
	to.Except = make([]rule.Match, len(nodes))
	for i, element := range nodes {
		m, before := &to.Except[i], len(r.Errs)
		r.Mapping(element, "except", hint,
			r.matchFields(m, func(n *yaml.Node) { m.Paths = r.pathList(n, to.PathSyntax) }))
		if m.Empty() && len(r.Errs) == before {
			r.Fail(element, hint, "an empty exception would exempt every request")
		}
	}
}

// pathList reads a list of paths into the normal form of syntax.
func (r *reader) pathList(n *yaml.Node, syntax rule.PathSyntax) []string {
	list := r.matchList(n, "path", "[/login]", func(n *yaml.Node, path string) (string, bool) {
		return path, r.checkPath(n, path, syntax)
	})
	normal, seen := list[:0], make(map[string]bool, len(list))
	for _, path := range list {
		if path = syntax.Normal(path); !seen[path] {
			normal, seen[path] = append(normal, path), true
		}
	}
	return intern(r, normal)
}

// matchFields returns the keys of a match and of an exception. They read into m, except for its paths.
func (r *reader) matchFields(m *rule.Match, paths func(*yaml.Node)) []strictyaml.Field {
	return []strictyaml.Field{
		{Name: "hosts", Read: func(n *yaml.Node) {
			m.Hosts = r.matchList(n, "host", "[example.com]", r.host)
			if len(m.Hosts) > 1 { // rules seldom share a single host
				m.Hosts = intern(r, m.Hosts)
			}
		}},
		{Name: "methods", Read: func(n *yaml.Node) { m.Methods = intern(r, r.matchList(n, "method", "[POST]", r.method)) }},
		{Name: "paths", Read: paths},
		{Name: "networks", Read: func(n *yaml.Node) {
			r.matchList(n, "network", "[office]", func(n *yaml.Node, name string) (string, bool) {
				m.Networks = append(m.Networks, r.use(n, setName{false, name}))
				return name, true
			})
		}},
		r.conditions(m, "headers", rule.Header),
		r.conditions(m, "cookies", rule.Cookie),
		r.conditions(m, "query", rule.Query),
	}
}

// matchList reads a list of strings, each called noun in errors. check checks one and returns its
// canonical form.
func (r *reader) matchList(n *yaml.Node, noun, example string, check func(*yaml.Node, string) (string, bool)) []string {
	plural := noun + "s"
	nodes := r.Sequence(n, plural, "write a list: "+example, "leave "+plural+" out to match every "+noun)
	list := make([]string, 0, len(nodes))
	seen := make(map[string]bool, len(nodes))
	for _, element := range nodes {
		text, ok := r.Text(element, noun)
		if ok {
			text, ok = check(element, text)
		}
		switch {
		case !ok:
		case seen[text]:
			r.Fail(element, "remove one of them", "%s is in %s twice", prose.Quote(text), plural)
		default:
			list, seen[text] = append(list, text), true
		}
	}
	return list
}

// maxHost is the maximum length of a host in the DNS.
const maxHost = 253

// host checks a host and returns its canonical form.
func (r *reader) host(n *yaml.Node, host string) (string, bool) {
	name, wildcard := strings.CutPrefix(host, "*.")
	canonical := rule.Request{Method: http.MethodGet, Host: name, Path: "/"}
	canonical.Check()
	canonical.Canonicalize(rule.ClientPrefix{})
	isName, isIPv6 := !strings.Contains(name, ":"), !wildcard && strings.HasSuffix(name, "]")
	if !canonical.Malformed && canonical.Host != "" && len(canonical.Host) <= maxHost && (isName || isIPv6) {
		return strings.TrimSuffix(host, name) + canonical.Host, true
	}
	r.Fail(n, `write a name without a port, in ASCII, such as example.com or "*.example.com", or an address, `+
		`with brackets if it is IPv6`, "%s is not a host", prose.Quote(host))
	return "", false
}

func (r *reader) method(n *yaml.Node, method string) (string, bool) {
	if !httpguts.ValidHeaderFieldName(method) || method != strings.ToUpper(method) || strings.Contains(method, "*") {
		r.Fail(n, "write a whole method in capital letters, such as GET or POST", "%s is not a method", prose.Quote(method))
		return "", false
	}
	return method, true
}

// checkPath reports whether path is canonical already, so that the file shows what is matched.
func (r *reader) checkPath(n *yaml.Node, path string, syntax rule.PathSyntax) bool {
	root := "" // before the last segment
	if strings.HasPrefix(path, "*") && path != "*" {
		root = "/"
	}
	canonical := rule.Request{Path: root + path}
	canonical.Canonicalize(rule.ClientPrefix{})
	decoded := strings.TrimPrefix(canonical.Path, root)
	switch {
	case strings.Contains(path, "**"):
		r.Fail(n, "write one *: it stands for anything, including slashes at the end of a path",
			"%s has two stars in succession", prose.Quote(path))
	case root != "" && (strings.Contains(path, "/") || strings.HasSuffix(path, "*")):
		r.Fail(n, `write the end of a segment, such as "*.php", or begin with a slash`,
			"%s begins with a *, so that it is about the last segment", prose.Quote(path))
	case root == "" && path != "*" && !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#"):
		r.Fail(n, "write a path that begins with a slash, without a query; a * stands for anything", "%s is not a path",
			prose.Quote(path))
	case path != decoded:
		r.Fail(n, "write it as it is matched, decoded and without empty or dot segments: "+prose.Quote(decoded),
			"%s matches no request", prose.Quote(path))
	case !syntax.ExactParameters && strings.Contains(path, ";"):
		r.Fail(n, "set path_parameters: exact in match; by default what follows a semicolon is ignored",
			"%s matches no request", prose.Quote(path))
	default:
		return true
	}
	return false
}

// conditions returns the field called key, which reads conditions about headers, cookies or query parameters into m.
func (r *reader) conditions(m *rule.Match, key string, kind rule.Kind) strictyaml.Field {
	hint := "write " + key + `: {example: ["a*"]}, or {example: present}, or {example: absent}`
	return strictyaml.Field{Name: key, Read: func(n *yaml.Node) {
		pairs := r.Pairs(n, key, hint)
		if strictyaml.IsMapping(n) && len(pairs) == 0 {
			r.Fail(n, hint, "%s is empty", key)
		}
		for _, pair := range pairs {
			name, ok := r.Text(pair[0], "a name in "+key)
			if !ok {
				continue
			}
			c := rule.Condition{Characteristic: r.named(pair[0], kind, name)}
			same := func(o rule.Condition) bool { return o.Characteristic.Same(c.Characteristic) }
			if slices.ContainsFunc(m.Conditions, same) {
				r.Fail(pair[0], "write one list of patterns", "%s is in %s twice", prose.Quote(name), key)
			}
			r.values(pair[1], &c)
			m.Conditions = append(m.Conditions, c)
		}
	}}
}

// values reads the values that a condition wants.
func (r *reader) values(n *yaml.Node, c *rule.Condition) {
	name, nodes := c.Characteristic.String(), []*yaml.Node{n}
	switch {
	case strictyaml.IsString(n) && (n.Value == "present" || n.Value == "absent"):
		c.Absent = n.Value == "absent"
		return
	case strictyaml.IsSequence(n):
		nodes = r.Sequence(n, name, "", "write present or absent")
	case !strictyaml.IsString(n) && !strictyaml.IsInteger(n):
		r.Fail(n, `write present, absent, or patterns in quotes: ["a*", "b"]`, "%s is %s, not a pattern", name,
			strictyaml.KindOf(n))
		return
	}
	for _, element := range nodes {
		text, ok := r.Text(element, name)
		p, err := rule.NewPattern(c.Characteristic.Kind, text)
		switch {
		case !ok:
		case text == "present" || text == "absent":
			r.Fail(element, fmt.Sprintf(`write %s without brackets, or "~^%[1]s$" for the word itself`, text),
				"%s is not in a list of patterns", text)
		case err != nil && strings.HasPrefix(text, "~*"):
			r.Fail(element, "letter case never counts in headers, and elsewhere (?i) after the ~ turns it off",
				"%s is not an expression", prose.Quote(text))
		case err != nil:
			r.Fail(element, fmt.Sprintf("write at most %d bytes: text in which * stands for anything or, after a ~, "+
				"an RE2 expression", rule.MaxPattern), "%s cannot have the pattern %s: %v", name, strictyaml.Short(text), err)
		case slices.ContainsFunc(c.Patterns, p.Equal):
			r.Fail(element, "remove one of them", "%s is in %s twice", prose.Quote(text), name)
		default:
			c.Patterns = append(c.Patterns, p)
		}
	}
}
