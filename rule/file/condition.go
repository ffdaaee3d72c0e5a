package file

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// conditions is the key of a match or an exception that has conditions of m about headers, cookies or query parameters.
func (r *reader) conditions(m *rule.Match, key string, kind rule.Kind) strictyaml.Field {
	hint := "write " + key + `: {example: ["a*"]}, or {example: present}, or {example: absent}`
	return strictyaml.Field{Name: key, Read: func(n *yaml.Node) {
		pairs := r.Pairs(n, key, hint)
		if strictyaml.IsMapping(n) && len(pairs) == 0 {
			r.Fail(n, hint, "%s is empty", key)
		}
		for _, pair := range pairs {
			name, ok := r.Text(pair[0], "a name in "+key)
			if ok && kind == rule.Header && strings.EqualFold(name, "host") {
				r.Fail(pair[0], "write hosts: [example.com] beside headers", "the host is not one of the headers")
				ok = false
			}
			if !ok {
				continue
			}
			c := rule.Condition{Characteristic: r.named(pair[0], kind, name)}
			if slices.ContainsFunc(m.Conditions, func(o rule.Condition) bool { return o.Characteristic.Same(c.Characteristic) }) {
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
	case strictyaml.IsString(n) && n.Value == "present":
		return
	case strictyaml.IsString(n) && n.Value == "absent":
		c.Absent = true
		return
	case strictyaml.IsSequence(n):
		nodes = r.Sequence(n, name, `write a list: ["a*", b]`, "write present or absent")
	case !strictyaml.IsString(n) && !strictyaml.IsInteger(n):
		r.Fail(n, `write present, absent, or patterns in quotes: ["a*", "b"]`, "%s is %s, not a pattern", name, strictyaml.KindOf(n))
		return
	}
	for _, each := range nodes {
		text, ok := r.Text(each, name)
		if !ok {
			continue
		}
		if text == "present" || text == "absent" {
			r.Fail(each, fmt.Sprintf(`write %s without brackets, or "~^%[1]s$" for the word itself`, text), "%s is not in a list of patterns", text)
			continue
		}
		p, err := rule.NewPattern(c.Characteristic.Kind, text)
		switch {
		case err != nil && strings.HasPrefix(text, "~*"):
			r.Fail(each, "letter case never counts in headers, and elsewhere (?i) after the ~ turns it off", "%s is not an expression", prose.Quote(text))
		case err != nil:
			reason := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
			r.Fail(each, fmt.Sprintf("write at most %d bytes: text in which * stands for anything or, after a ~, an RE2 expression", rule.MaxPattern),
				"%s cannot have the pattern %s: %s", name, strictyaml.Short(text), reason)
		case slices.ContainsFunc(c.Patterns, p.Equal):
			r.Fail(each, "remove one of them", "%s is in %s twice", prose.Quote(text), name)
		default:
			c.Patterns = append(c.Patterns, p)
		}
	}
}
