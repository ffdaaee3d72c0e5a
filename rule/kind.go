package rule

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/internal/prose"
)

// A Kind is the kind of a characteristic. Its number is part of every key, so a new kind goes to the end of the list.
//
// To add a kind, add a constant, a row to kinds, and cases to the functions of this file: for valid names, and for
// values in keys, in operators' requests and in explanations. If it has a name or clients share its keys,
// rule/file/schema.json needs its form. The tests of load/judge then fail until its match.go knows the kind.
type Kind uint8

const (
	IP Kind = iota + 1
	Host
	Path
	Method
	Header
	Cookie
	Query
	Label
	Network
	First
)

// A kindRow says what distinguishes a kind from others.
type kindRow struct {
	name   string                   // in rules files
	form   string                   // of a characteristic in rules files, if it has a name
	words  string                   // in a sentence, unless they are name
	text   func(r *Request) *string // the field that is or contains the value; nil for headers and addresses
	width  int                      // see Rule.Width
	chosen bool                     // by clients
	given  []string                 // see Given
}

var kinds = [...]kindRow{
	IP: {name: "ip", words: "client address", given: addressKeys},
	Host: {name: "host", width: widest, text: func(r *Request) *string { return &r.Host },
		given: []string{"host", ":authority", "authority"}},
	Path: {name: "path", width: widest, text: func(r *Request) *string { return &r.Path },
		given: []string{"path", ":path"}},
	Method: {name: "method", width: widest, text: func(r *Request) *string { return &r.Method },
		given: []string{"method", ":method", "http_method", "request_method"}},
	Header: {name: "header", form: "header:NAME", chosen: true},
	Cookie: {name: "cookie", form: "cookie:NAME", chosen: true},
	Query: {name: "query", form: "query:NAME", words: "query parameter", chosen: true,
		text: func(r *Request) *string { return &r.Query }},
	Label:   {name: "label", form: "label:NAME", width: widest - 1},
	Network: {name: "network", form: "network:24/48", width: widest - 2, given: addressKeys},
	First:   {name: "first", form: "{first: [cookie:sid, ip]}"},
}

var addressKeys = []string{"ip", "remote_address", "masked_remote_address"}

// KindNames returns the names of all kinds, by their numbers: the first is empty.
func KindNames() []string { return prose.Texts(kinds[:], func(k kindRow) string { return k.name }) }

// KindForms returns how rules files write characteristics, by kind, without an empty one.
func KindForms() []string {
	return prose.Texts(kinds[IP:], func(k kindRow) string { return cmp.Or(k.form, k.name) })
}

// String returns the kind as spelled in rules files.
func (k Kind) String() string { return kinds[k].name }

// Words returns the kind as in a sentence.
func (k Kind) Words() string { return cmp.Or(kinds[k].words, kinds[k].name) }

// Text returns the field of r that is or contains the value, or nil if the value comes from a header or the address.
func (k Kind) Text(r *Request) *string {
	if text := kinds[k].text; text != nil {
		return text(r)
	}
	return nil
}

// Given returns all names under which Envoy's descriptors give values of kind k. It returns nil for labels, which
// descriptors do not give, and if clients choose the values: their name is then that of the characteristic.
func (k Kind) Given() []string { return kinds[k].given }

// Named reports whether characteristics of kind k have a name.
func (k Kind) Named() bool { return kinds[k].form != "" }

// Chosen reports whether clients choose the values of characteristics of kind k.
func (k Kind) Chosen() bool { return kinds[k].chosen }

// NewCharacteristic returns the characteristic of a kind with a name, which is "" for kinds without one. ok
// is false if the name is invalid for the kind. NewCharacteristic does not make labels or alternatives.
func NewCharacteristic(kind Kind, name string) (c Characteristic, ok bool) {
	c, ok = Characteristic{Kind: kind, Name: name}, kind.Named() == (name != "")
	switch kind {
	case Header: // the host is a separate characteristic
		c.Name, c.field = strings.ToLower(name), textproto.CanonicalMIMEHeaderKey(name)
		ok = ok && httpguts.ValidHeaderFieldName(name) && c.Name != "host"
	case Cookie:
		c.field = "Cookie"
		ok = ok && httpguts.ValidHeaderFieldName(name)
	case Network:
		_, _ = fmt.Sscanf(name, "%d/%d", &c.ipv4, &c.ipv6)
		ok = 1 <= c.ipv4 && c.ipv4 <= 32 && 1 <= c.ipv6 && c.ipv6 <= 64 && name == fmt.Sprintf("%d/%d", c.ipv4, c.ipv6)
	}
	return c, ok
}

// appendValues appends the number of req's values of c, and the values.
func (r *Rule) appendValues(b []byte, c *Characteristic, req *Request) (_ []byte, n int) {
	switch c.Kind {
	case IP:
		return appendAddr(b, req.client, req.bits)
	case Network:
		return appendAddr(b, c.network(req.Addr).Addr(), 0)
	case Host:
		return appendString(append(b, 0, 0, 0, 1), req.Host), 1
	case Method:
		return appendString(append(b, 0, 0, 0, 1), req.Method), 1
	case Label:
		if label, ok := c.Labels.table.Lookup(req.Addr); ok {
			return appendString(append(b, 0, 0, 0, 1), label), 1
		}
		return append(b, 0, 0, 0, 0), 0
	}
	number := len(b)
	b = append(b, 0, 0, 0, 0)
	l := list{from: len(b), most: MaxKeys}
	if c.Kind == Path {
		b = r.appendPaths(b, &l, req)
	} else {
		b = c.collect(b, &l, req)
	}
	binary.BigEndian.PutUint32(b[number:], uint32(l.n))
	return b, l.n
}

// collect appends req's distinct values of c, a header, cookie or query parameter.
func (c *Characteristic) collect(b []byte, l *list, req *Request) []byte {
	switch c.Kind {
	case Header:
		for _, value := range req.fields()[c.field] {
			if l.pairs++; l.pairs > maxPairs || l.long > 0 && len(value) > l.long {
				return l.overflow(b)
			}
			value = trimBlanks(value)
			if c.field == "Authorization" || c.field == "Proxy-Authorization" {
				b = l.appendCredentials(b, value)
				continue
			}
			begin := len(b)
			b = l.end(appendString(b, value), begin)
		}
	case Cookie:
		for _, line := range req.fields()[c.field] {
			b = l.appendPairs(b, line, c.Name, true)
		}
	case Query:
		b = l.appendPairs(b, req.Query, c.Name, false)
	default:
		panic("rule: unknown kind of characteristic")
	}
	return b
}

// setValue sets the value of c in r.
func (r *Request) setValue(c *Characteristic, value string) (err error) {
	switch c.Kind {
	case IP:
		if r.Addr, err = netip.ParseAddr(value); err != nil {
			return fmt.Errorf("%q is not an address", value)
		}
	case Network:
		prefix, err := netip.ParsePrefix(value)
		if addr, wrong := netip.ParseAddr(value); wrong == nil {
			prefix, err = c.network(addr.Unmap()), nil
		}
		if err != nil || c.network(prefix.Addr()) != prefix.Masked() {
			return fmt.Errorf("%q is not an IPv4 network of %d bits or an IPv6 network of %d bits", value, c.ipv4, c.ipv6)
		}
		r.Addr = prefix.Addr()
	case Label:
		var ok bool
		if r.Addr, ok = c.Labels.addr(value); !ok {
			return fmt.Errorf("no address has the label %q", value)
		}
	case Header, Cookie:
		if c.Kind == Cookie {
			value = c.Name + "=" + url.PathEscape(value)
		}
		if r.Header == nil {
			r.Header = map[string][]string{}
		}
		r.Header[c.field] = append(r.Header[c.field], value)
	case Query:
		if r.Query != "" {
			r.Query += "&"
		}
		r.Query += url.QueryEscape(c.Name) + "=" + url.QueryEscape(value)
	default:
		*c.Kind.Text(r) = value
	}
	return nil
}

// about describes the value of c in req, if it is known and not secret.
func (c *Characteristic) about(req *Request) (text string, ok bool) {
	switch c.Kind {
	case IP:
		if req.bits == 0 && !req.client.Is6() {
			return req.client.String(), req.client.IsValid()
		}
		return netip.PrefixFrom(req.client, int(cmp.Or(req.bits, 64))).String(), true
	case Network:
		network := c.network(req.Addr)
		return "network " + network.String(), network.IsValid()
	case Label:
		label, ok := c.Labels.table.Lookup(req.Addr)
		return c.Name + " " + label, ok
	}
	if value := c.Kind.Text(req); value != nil && !c.Kind.Chosen() {
		return c.Kind.String() + " " + *value, *value != ""
	}
	return "", false
}

// A Characteristic is a property by whose values requests are counted.
type Characteristic struct {
	Kind Kind

	// Name is the name of the header (in lower case), cookie or query parameter, the name of the labels,
	// the lengths of networks (24/48 for IPv4 and IPv6), or the alternatives. Other kinds have no name.
	Name string

	// Skip says that the rule does not apply to requests without a value. If false, all of them share one
	// count. It is always true for labels.
	Skip bool

	// First has the alternatives of the kind First. A request is counted by the first one for which it has a value,
	// or else by the last one.
	First []Characteristic

	// Labels has the labels of the kind Label.
	Labels *NetworkSet

	field      string // with the value, as net/http spells it, if it is in the header
	ipv4, ipv6 uint8  // lengths of networks
}

// Same reports whether c and o are the same property.
func (c Characteristic) Same(o Characteristic) bool { return c.Kind == o.Kind && c.Name == o.Name }

// Field returns the name of the field with the value, as net/http spells it, or "" if it is not in the header.
func (c *Characteristic) Field() string { return c.field }

// String returns the characteristic as spelled in rules files: ip, header:x-api-key.
func (c Characteristic) String() string {
	if !c.Kind.Named() {
		return c.Kind.String()
	}
	return c.Kind.String() + ":" + c.Name
}

// Width orders rules by how many clients share a key. It is 0 if each client has its own keys, greater for
// larger networks and for labels, and greatest if all clients share a key.
func (r *Rule) Width() int {
	width := widest
	for i := range r.Characteristics {
		c := &r.Characteristics[i]
		width = min(width, kinds[c.Kind].width-int(c.ipv4))
	}
	return width
}

const widest = 35

// Parent reports whether all clients of a network or label share a key of r.
func (r *Rule) Parent() bool {
	width := r.Width()
	return 0 < width && width < widest
}

// CountsBy reports whether the keys of r depend on characteristics of kind k.
func (r *Rule) CountsBy(k Kind) bool { return hasKind(r.Characteristics, k) }

// hasKind reports whether one of list, or an alternative of one, is of kind k.
func hasKind(list []Characteristic, k Kind) bool {
	for i := range list {
		if list[i].Kind == k || hasKind(list[i].First, k) {
			return true
		}
	}
	return false
}

// Leaves yields the characteristics of r, with alternatives in place of those of the kind First.
func (r *Rule) Leaves() iter.Seq[*Characteristic] {
	return func(yield func(*Characteristic) bool) {
		for i := range r.Characteristics {
			c := &r.Characteristics[i]
			if c.Kind != First && !yield(c) {
				return
			}
			for j := range c.First {
				if !yield(&c.First[j]) {
					return
				}
			}
		}
	}
}

// network returns the network of addr, or the zero Prefix if addr is invalid.
func (c *Characteristic) network(addr netip.Addr) netip.Prefix {
	bits := c.ipv6
	if addr.Is4() {
		bits = c.ipv4
	}
	prefix, _ := addr.Prefix(int(bits))
	return prefix
}

// Bits returns the lengths of c's networks, or 0 if c is of another kind.
func (c *Characteristic) Bits() (ipv4, ipv6 int) { return int(c.ipv4), int(c.ipv6) }
