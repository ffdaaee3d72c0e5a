package analysis

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/edgelimit/edge/analysis/accesslog"
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

// nameOf returns the name in a report for a client that sent e: its name in the log, or its network if that is
// one client.
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
