package analysis

import (
	"cmp"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// RequestOf returns the request of e as a node would see it.
func RequestOf(e *accesslog.Entry) rule.Request { return (&requests{fields: true}).of(e) }

// requests converts entries to requests. Results are valid until the next call.
type requests struct {
	fields bool // rules read header fields
	header map[string][]string
	values []string
}

// of returns the request of e as a node would see it.
func (r *requests) of(e *accesslog.Entry) rule.Request { return r.at(e, address(e)) }

// at is like of for an entry whose address is known.
func (r *requests) at(e *accesslog.Entry, addr netip.Addr) rule.Request {
	req := rule.Request{Addr: addr, Method: e.Method, Host: e.Host, Path: e.Path, Query: e.Query}
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

// address returns the address of e's client. A client that the log identifies by something else gets an address
// in fd00::/8, so that rules that count by ip distinguish it from others: client n, a number below 2^55, has n
// in the 55 bits after fd0, any other client a hash of its name in those after fd8. They are in the upper half
// of the address, which identifies a client by default. The lowest bit of n comes first, so that clients stay
// distinct if a shorter prefix identifies a client.
func address(e *accesslog.Entry) netip.Addr {
	if e.Addr.IsValid() {
		return e.Addr
	}
	const hashed = 1 << 55 // set for a hash
	n, err := strconv.ParseUint(e.Client, 10, 64)
	if err != nil || n >= hashed || len(e.Client) > 1 && e.Client[0] == '0' { // 007 is not 7
		n = hashed | xxhash.Sum64String(e.Client)%hashed
	} else {
		n = bits.Reverse64(n) >> 9
	}
	addr := [16]byte{0: 0xfd, 15: 1}
	for i := range 7 {
		addr[7-i] = byte(n >> (8 * i))
	}
	return netip.AddrFrom16(addr)
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
