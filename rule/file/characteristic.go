package file

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// ParseCharacteristic parses a characteristic written as a string: ip, host, path, method, header:NAME,
// cookie:NAME, query:NAME, network:24/48. Requests without a value share one count.
func ParseCharacteristic(text string) (rule.Characteristic, error) {
	r := newLoader(false).reader("", nil)
	c, ok := r.characteristic(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text})
	if ok && c.Kind == rule.Label {
		return rule.Characteristic{}, errors.New("rule: labels need a rules file that names their file")
	}
	if !ok {
		return rule.Characteristic{}, fmt.Errorf("rule: %s (%s)", r.Errs[0].Message, r.Errs[0].Hint)
	}
	return c, nil
}

func (r *reader) characteristicList(n *yaml.Node) []rule.Characteristic {
	nodes := r.Sequence(n, "characteristics", "write a list: [ip]",
		"write [ip] to count each client separately, [host] to count each host separately")
	list := make([]rule.Characteristic, 0, len(nodes))
	for _, element := range nodes {
		c, ok := r.characteristic(element)
		if ok && slices.ContainsFunc(list, c.Same) {
			r.Fail(element, "remove one of them", "%s is listed twice", c)
		} else if ok {
			list = append(list, c)
		}
	}
	return intern(r, list)
}

// characteristic reads a characteristic that is a string, ip or header:NAME, or a mapping,
// {header: NAME, missing: skip}.
func (r *reader) characteristic(n *yaml.Node) (c rule.Characteristic, ok bool) {
	before := len(r.Errs)
	if n.Kind == yaml.MappingNode {
		c = r.mapping(n)
		return c, len(r.Errs) == before
	}
	text, isText := r.Text(n, "a characteristic")
	if !isText {
		return c, false
	}
	kind, name, hasName := strings.Cut(text, ":")
	at := slices.Index(kindWords, kind)
	switch {
	case at < 1 && prose.Guess(kind, kindWords[rule.IP:]) != "":
		r.Fail(n, fmt.Sprintf("did you mean %s?", prose.Guess(kind, kindWords[rule.IP:])+text[len(kind):]),
			"unknown characteristic %s", prose.Quote(text))
	case at < 1:
		r.Fail(n, "write "+prose.EnumerateAll(rule.KindForms(), "or"), "unknown characteristic %s", prose.Quote(text))
	case rule.Kind(at).Named() != hasName || rule.Kind(at) == rule.First:
		r.Fail(n, "write "+prose.EnumerateAll(rule.KindForms(), "or"), "%s is not a characteristic", prose.Quote(text))
	default:
		c = r.named(n, rule.Kind(at), name)
	}
	return c, len(r.Errs) == before
}

// kindWords are the kinds as written in rules files. The first is empty.
var kindWords = rule.KindNames()

// mapping reads a characteristic that is a mapping, {header: NAME, missing: skip}.
func (r *reader) mapping(n *yaml.Node) (c rule.Characteristic) {
	field := func(kind rule.Kind) strictyaml.Field {
		return strictyaml.Field{Name: kind.String(), Read: func(n *yaml.Node) {
			if c.Kind != 0 {
				r.Fail(n, "make it two characteristics", "this characteristic is both %s and %s", c.Kind, kind)
				return
			}
			c.Kind = kind
			if kind == rule.First {
				c.First, c.Name = r.alternatives(n)
			} else if name, ok := r.Text(n, kind.String()); ok {
				c = r.named(n, kind, name)
			}
		}}
	}
	before := len(r.Errs)
	const hint = "write {header: x-api-key, missing: skip}"
	r.Mapping(n, "this characteristic", hint, []strictyaml.Field{
		field(rule.Header), field(rule.Cookie), field(rule.Query), field(rule.First),
		{Name: "missing", Read: func(n *yaml.Node) { c.Skip = r.Choice(n, "missing", []string{"share", "skip"}) == 1 }},
	})
	switch {
	case len(r.Errs) > before:
	case c.Kind == 0:
		r.Fail(n, hint, "this characteristic has no header, cookie or query")
	case c.Kind == rule.First && c.Skip:
		r.Fail(n, "write missing: skip for the last alternative", "first cannot have missing")
	}
	return c
}

// named returns the characteristic of a kind with a name, which is "" for kinds without one.
func (r *reader) named(n *yaml.Node, kind rule.Kind, name string) rule.Characteristic {
	if kind == rule.Label && name != "" {
		return rule.Characteristic{Kind: kind, Name: name, Skip: true, Labels: r.use(n, setName{true, name})}
	}
	c, ok := rule.NewCharacteristic(kind, name)
	switch {
	case ok:
	case name == "":
		r.Fail(n, "write the name", "the name of the %s is empty", kind.Words())
	case kind == rule.Network:
		r.Fail(n, "write network:24/48, with up to 32 bits for IPv4 and up to 64 for IPv6", "networks cannot have %s bits",
			prose.Quote(name))
	case kind == rule.Header && strings.EqualFold(name, "host"):
		r.Fail(n, "write host or, in a match, hosts: [example.com]", "the host is a separate characteristic, not a header")
	default:
		r.Fail(n, "names have no spaces, colons, commas, brackets or quotes", "%s is not the name of a %s", prose.Quote(name),
			kind)
	}
	return c
}

// alternatives reads the alternatives of a characteristic of the kind First, and returns its name.
func (r *reader) alternatives(n *yaml.Node) (list []rule.Characteristic, name string) {
	var names []string
	for _, element := range r.Sequence(n, "first", "write a list: [cookie:sid, ip]", "write [cookie:sid, ip]") {
		alternative, ok := r.characteristic(element)
		switch {
		case !ok:
		case alternative.Kind == rule.First:
			r.Fail(element, "write all alternatives in one list", "first cannot contain first")
		case slices.ContainsFunc(list, alternative.Same):
			r.Fail(element, "remove one of them", "%s is listed twice", alternative)
		case len(names) == 255:
			r.Fail(element, "leave some of them out", "there are more than 255 alternatives")
		default:
			list, names = append(list, alternative), append(names, alternative.String())
		}
	}
	if len(names) == 1 {
		r.Fail(n, "add an alternative, or write this one without first", "first needs at least two alternatives")
	}
	return list, strings.Join(names, ",")
}
