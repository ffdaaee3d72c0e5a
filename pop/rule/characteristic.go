package rule

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ParseCharacteristic reads a characteristic as rules files write it in a word: ip, host,
// path, method, header:NAME, cookie:NAME, query:NAME. Requests without a value share one
// count.
func ParseCharacteristic(text string) (Characteristic, error) {
	r := newReader("", 0)
	c, ok := r.characteristic(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text})
	if !ok {
		return Characteristic{}, fmt.Errorf("rule: %s (%s)", r.errs[0].Message, r.errs[0].Hint)
	}
	return c, nil
}

func (r *reader) characteristicList(n *yaml.Node) []Characteristic {
	nodes, _ := r.sequence(n, "characteristics", "write a list: [ip]", "write [ip] to count each client apart, [host] to count each host apart")
	list := make([]Characteristic, 0, len(nodes))
	for _, each := range nodes {
		c, ok := r.characteristic(each)
		if ok && slices.ContainsFunc(list, func(o Characteristic) bool { return o.Kind == c.Kind && o.Name == c.Name }) {
			r.fail(each, "leave one of them out", "%s is listed twice", c)
		} else if ok {
			list = append(list, c)
		}
	}
	key := ""
	for _, c := range list {
		key += fmt.Sprintf("%q %t ", c, c.Skip)
	}
	return intern(r.characteristics, key, list)
}

// characteristic reads one that is written as a string, ip or header:NAME, or as a
// mapping, {header: NAME, missing: skip}.
func (r *reader) characteristic(n *yaml.Node) (c Characteristic, ok bool) {
	before := len(r.errs)
	if resolve(n).Kind == yaml.MappingNode {
		r.mapping(n, "this characteristic", "write {header: x-api-key, missing: skip}", r.characteristicFields(&c))
		if c.Kind == 0 && len(r.errs) == before {
			r.fail(n, "write {header: x-api-key, missing: skip}", "this characteristic has no header, cookie or query")
		}
		return c, len(r.errs) == before
	}
	text, isText := r.text(n, "a characteristic")
	if !isText {
		return c, false
	}
	kind, name, hasName := strings.Cut(text, ":")
	at := slices.Index(kindNames[:], kind)
	switch {
	case at < 1 && guess(kind, kindNames[IP:]) != "":
		r.fail(n, fmt.Sprintf("did you mean %s?", guess(kind, kindNames[IP:])+text[len(kind):]), "unknown characteristic %s", quote(text))
	case at < 1:
		r.fail(n, "write "+enumerate(spelledKinds(), "or"), "unknown characteristic %s", quote(text))
	case !Kind(at).named() && hasName:
		r.fail(n, fmt.Sprintf("write %s alone", kind), "%s takes no name", kind)
	case Kind(at).named() && !hasName:
		r.fail(n, fmt.Sprintf("write %s:NAME", kind), "%s needs a name", kind)
	default:
		if c.Kind = Kind(at); hasName {
			r.name(n, &c, name)
		}
	}
	return c, len(r.errs) == before
}

// spelledKinds returns the kinds as characteristics are written.
func spelledKinds() []string {
	var list []string
	for kind := IP; kind <= Query; kind++ {
		if kind.named() {
			list = append(list, kind.String()+":NAME")
		} else {
			list = append(list, kind.String())
		}
	}
	return list
}

// The ways to treat requests without a value.
const (
	share = iota
	skip
)

var missingNames = [...]string{share: "share", skip: "skip"}

// characteristicFields are the keys of a characteristic that is written as a mapping;
// they read into c.
func (r *reader) characteristicFields(c *Characteristic) []Field {
	named := func(kind Kind) Field {
		return Field{kind.String(), "", func(n *yaml.Node) {
			if c.Kind != 0 {
				r.fail(n, "make it two characteristics", "this characteristic is %s and %s at once", c.Kind, kind)
				return
			}
			c.Kind = kind
			if name, ok := r.text(n, kind.String()); ok {
				r.name(n, c, name)
			}
		}}
	}
	return []Field{named(Header), named(Cookie), named(Query),
		{"missing", "", func(n *yaml.Node) {
			c.Skip = r.choice(n, "missing", missingNames[:]) == skip
		}},
	}
}

// name checks the name of a header, cookie or query parameter and sets it.
func (r *reader) name(n *yaml.Node, c *Characteristic, name string) {
	switch {
	case name == "":
		r.fail(n, "write the name", "the name of the %s is empty", c.spokenKind())
	case c.Kind != Query && !isToken(name):
		r.fail(n, "names have no spaces, colons, commas, brackets or quotes", "%s is no name of a %s", quote(name), c.Kind)
	case c.Kind == Header && strings.EqualFold(name, "host"):
		r.fail(n, "write host", "the host is a characteristic of its own, not a header")
	case c.Kind == Header:
		c.canonical = http.CanonicalHeaderKey(name)
		name = strings.ToLower(name)
	}
	c.Name = name
}

// isToken reports whether s is a token of RFC 9110, as methods and header names are.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}
