package rule

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// ParseCharacteristic parses a characteristic in the form of a word: ip, host, path, method, header:NAME,
// cookie:NAME, query:NAME, network:24/48. Requests without a value share one count.
func ParseCharacteristic(text string) (Characteristic, error) {
	r := new(loader).reader("", nil, 0)
	c, ok := r.characteristic(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text})
	if ok && c.Kind == Label {
		return Characteristic{}, errors.New("rule: labels need a rules file that names their file")
	}
	if !ok {
		return Characteristic{}, fmt.Errorf("rule: %s (%s)", r.Errs[0].Message, r.Errs[0].Hint)
	}
	return c, nil
}

func (r *reader) characteristicList(n *yaml.Node) []Characteristic {
	nodes := r.Sequence(n, "characteristics", "write a list: [ip]", "write [ip] to count each client separately, [host] to count each host separately")
	list := make([]Characteristic, 0, len(nodes))
	for _, each := range nodes {
		c, ok := r.characteristic(each)
		if ok && slices.ContainsFunc(list, c.Same) {
			r.Fail(each, "remove one of them", "%s is listed twice", c)
		} else if ok {
			list = append(list, c)
		}
	}
	return intern(r, list)
}

// characteristic reads a characteristic that is a string, ip or header:NAME, or a mapping,
// {header: NAME, missing: skip}.
func (r *reader) characteristic(n *yaml.Node) (c Characteristic, ok bool) {
	before := len(r.Errs)
	if strictyaml.Resolve(n).Kind == yaml.MappingNode {
		r.mapping(n, &c)
		return c, len(r.Errs) == before
	}
	text, isText := r.Text(n, "a characteristic")
	if !isText {
		return c, false
	}
	kind, name, hasName := strings.Cut(text, ":")
	at := slices.Index(kindNames[:], kind)
	switch {
	case at < 1 && strictyaml.Guess(kind, kindNames[IP:]) != "":
		r.Fail(n, fmt.Sprintf("did you mean %s?", strictyaml.Guess(kind, kindNames[IP:])+text[len(kind):]), "unknown characteristic %s", strictyaml.Quote(text))
	case at < 1:
		r.Fail(n, "write "+strictyaml.Enumerate(kindForms, "or"), "unknown characteristic %s", strictyaml.Quote(text))
	case !Kind(at).named() && hasName:
		r.Fail(n, fmt.Sprintf("write %s alone", kind), "%s takes no name", kind)
	case Kind(at) == First:
		r.Fail(n, "write {first: [cookie:sid, ip]}", "the alternatives of first are a list")
	case Kind(at) == Network && !hasName:
		r.Fail(n, "write network:24/48 for IPv4 networks of 24 bits and IPv6 networks of 48", "network needs the sizes of networks")
	case Kind(at).named() && !hasName:
		r.Fail(n, fmt.Sprintf("write %s:NAME", kind), "%s needs a name", kind)
	default:
		if c.Kind = Kind(at); hasName {
			r.name(n, &c, name)
		}
	}
	return c, len(r.Errs) == before
}

// kindForms are the forms of characteristics that are strings.
var kindForms = strings.Fields("ip host path method header:NAME cookie:NAME query:NAME label:NAME network:24/48")

// mapping reads a characteristic that is a mapping, {header: NAME, missing: skip}.
func (r *reader) mapping(n *yaml.Node, c *Characteristic) {
	field := func(kind Kind) strictyaml.Field {
		return strictyaml.Field{Name: kind.String(), Read: func(n *yaml.Node) {
			if c.Kind != 0 {
				r.Fail(n, "make it two characteristics", "this characteristic is %s and %s at once", c.Kind, kind)
			} else if c.Kind = kind; kind == First {
				r.alternatives(n, c)
			} else if name, ok := r.Text(n, kind.String()); ok {
				r.name(n, c, name)
			}
		}}
	}
	before := len(r.Errs)
	const hint = "write {header: x-api-key, missing: skip}"
	r.Mapping(n, "this characteristic", hint, []strictyaml.Field{field(Header), field(Cookie), field(Query), field(First),
		{Name: "missing", Read: func(n *yaml.Node) { c.Skip = r.Choice(n, "missing", []string{"share", "skip"}) == 1 }},
	})
	switch {
	case len(r.Errs) > before:
	case c.Kind == 0:
		r.Fail(n, hint, "this characteristic has no header, cookie or query")
	case c.Kind == First && c.Skip:
		r.Fail(n, "write missing: skip for the last alternative", "first cannot have missing")
	}
}

// name sets the name of c, and checks it.
func (r *reader) name(n *yaml.Node, c *Characteristic, name string) {
	switch {
	case name == "":
		r.Fail(n, "write the name", "the name of the %s is empty", c.spokenKind())
	case c.Kind == Network:
		r.networkBits(n, c, name)
	case c.Kind == Label:
		c.Skip, c.labels = true, r.use(n, setName{true, name})
	case c.Kind != Query && !httpguts.ValidHeaderFieldName(name):
		r.Fail(n, "names have no spaces, colons, commas, brackets or quotes", "%s is not the name of a %s", strictyaml.Quote(name), c.Kind)
	case c.Kind == Header && strings.EqualFold(name, "host"):
		r.Fail(n, "write host", "the host is a separate characteristic, not a header")
	case c.Kind == Header:
		c.canonical = http.CanonicalHeaderKey(name)
		name = strings.ToLower(name)
	}
	c.Name = name
}
