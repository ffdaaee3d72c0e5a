package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
)

// requests converts entries to requests. Results are valid until the next call.
type requests struct {
	next   rule.Request
	fields bool // rules read header fields
	header map[string][]string
	values []string
}

// at returns the request of e as a node would see it. addr is the address of its client.
func (r *requests) at(e *accesslog.Entry, addr netip.Addr) *rule.Request {
	req := &r.next
	*req = rule.Request{Addr: addr, Method: e.Method, Host: e.Host, Path: e.Path, Query: e.Query}
	if !r.fields || len(e.Header) == 0 {
		return req
	}
	if r.header == nil {
		r.header = map[string][]string{}
	}
	clear(r.header)
	r.values = r.values[:0]
	for _, f := range e.Header {
		if before, ok := r.header[f.Name]; ok {
			r.header[f.Name] = append(before[:len(before):len(before)], f.Value)
			continue
		}
		r.values = append(r.values, f.Value)
		n := len(r.values)
		r.header[f.Name] = r.values[n-1 : n : n]
	}
	req.Header = r.header
	return req
}

// nameOf returns the name in a report for a client that sent e: its network if a client is a whole network, else its
// name in the log.
func nameOf(e *accesslog.Entry, client netip.Addr, p rule.ClientPrefix) string {
	length := cmp.Or(p.IPv6, 64)
	if client.Is4() {
		length = cmp.Or(p.IPv4, 32)
	}
	if !e.Addr.IsValid() || length >= client.BitLen() {
		return strings.Clone(e.Client)
	}
	return netip.PrefixFrom(client, length).String()
}

// FieldsOf returns the fields of entries that a replay of rules needs.
func FieldsOf(sets ...*rule.Set) accesslog.Fields {
	if slices.ContainsFunc(sets, (*rule.Set).ReadsFields) {
		return accesslog.All
	}
	return accesslog.All &^ accesslog.Header
}

// Unseen holds the properties of requests that rules use and that no entry of a log has had yet, in the spelling of
// characteristics, each with a function that reports whether an entry has it.
type Unseen map[string]func(e *accesslog.Entry) bool

// NewUnseen returns the properties that rules use. Those that logs never have, such as headers of responses, stay.
func NewUnseen(sets ...*rule.Set) Unseen {
	u := Unseen{}
	add := func(name string, used bool, has func(e *accesslog.Entry) bool) {
		if used {
			u[name] = has
		}
	}
	var rules []*rule.Rule
	for _, s := range sets {
		rules = append(rules, s.Rules()...)
	}
	for _, r := range rules {
		for _, m := range slices.Concat([]rule.Match{r.Match}, r.Except) {
			add("host", m.Hosts != nil, func(e *accesslog.Entry) bool { return e.Host != "" })
			add("method", m.Methods != nil, func(e *accesslog.Entry) bool { return e.Method != "" })
			add("address", m.Networks != nil, func(e *accesslog.Entry) bool { return e.Addr.IsValid() })
		}
		add("status", r.Statuses != nil, func(e *accesslog.Entry) bool { return e.Status != 0 })
		add(r.CostSource()+" of responses", r.CostSource() != "", func(*accesslog.Entry) bool { return false })
		used := slices.Collect(r.Leaves())
		for _, c := range r.AllConditions() {
			used = append(used, &c.Characteristic)
		}
		for _, c := range used {
			add(c.String(), c.Field() != "", func(e *accesslog.Entry) bool {
				return slices.ContainsFunc(e.Header, func(f accesslog.Field) bool { return strings.EqualFold(f.Name, c.Field()) })
			})
			add(c.String(), c.Kind.Text(&rule.Request{}) != nil, func(e *accesslog.Entry) bool {
				return *c.Kind.Text(&rule.Request{Method: e.Method, Host: e.Host, Path: e.Path, Query: e.Query}) != ""
			})
		}
	}
	return u
}

// Note removes the properties that an entry has.
func (u Unseen) Note(e *accesslog.Entry) {
	maps.DeleteFunc(u, func(_ string, has func(*accesslog.Entry) bool) bool { return has(e) })
}

// Err returns an error that lists the properties. Without any, it returns nil.
func (u Unseen) Err() error {
	if len(u) == 0 {
		return nil
	}
	return fmt.Errorf("the log lacks %s: rules that use these decide differently on a node",
		prose.EnumerateAll(slices.Sorted(maps.Keys(u)), "and"))
}
