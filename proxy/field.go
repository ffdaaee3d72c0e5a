package proxy

import (
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/proxy/http1"
)

// odd reports whether c is neither a letter nor a digit nor a hyphen.
func odd(c byte) bool { return c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') }

// confuses reports whether CGI cannot distinguish the field called name, which has odd bytes, from one that the node
// sets, strips, trusts or counts by.
func (p *Proxy) confuses(name []byte) bool {
	var buf [64]byte
	return http1.IsSpecial(appendHyphened(buf[:0], name)) || p.o.Limiter.Rules().Confuses(borrow(name))
}

// Keeps reports whether a field of the request is forwarded. A field is dropped if the node sets it, or if CGI confuses
// it with one that the node sets, strips, trusts or counts by.
func (x *exchange) Keeps(f *http1.Field, name []byte) bool {
	switch f.Name {
	case http1.XForwardedFor, http1.ProxyAuthenticate, http1.ProxyAuthorization:
		return false
	case http1.XForwardedHost, http1.XForwardedProto, http1.Forwarded:
		return x.trusted
	case http1.Other:
	default:
		return true
	}
	return !slices.ContainsFunc(name, odd) || !x.p.confuses(name)
}

// AppendRequest appends the fields that describe the client to the origin. It keeps those of a trusted peer, and
// extends its X-Forwarded-For.
func (x *exchange) AppendRequest(dst []byte) []byte {
	dst = append(dst, "X-Forwarded-For: "...)
	chain := len(dst)
	var host, proto bool // whether the peer has sent X-Forwarded-Host, X-Forwarded-Proto
	for f := range x.r.Fields {
		switch {
		case !x.trusted:
		case f.Name == http1.XForwardedFor:
			if len(dst) > chain {
				dst = append(dst, ", "...)
			}
			dst = append(dst, x.r.ValueOf(f)...)
		case f.Name == http1.XForwardedHost:
			host = true
		case f.Name == http1.XForwardedProto:
			proto = true
		}
	}
	if len(dst) > chain {
		dst = append(dst, ", "...)
	}
	dst = append(x.peer.AppendTo(dst), "\r\n"...)
	if !host {
		dst = append(append(append(dst, "X-Forwarded-Host: "...), x.r.Host()...), "\r\n"...)
	}
	switch {
	case proto:
	case x.c.Secure():
		dst = append(dst, "X-Forwarded-Proto: https\r\n"...)
	default:
		dst = append(dst, "X-Forwarded-Proto: http\r\n"...)
	}
	return dst
}

// KeepsTrailer reports whether a trailer of the request is forwarded. Some origins merge trailers into the header, so a
// trailer is dropped if a rule uses fields of its name, if it is invalid as a trailer (RFC 9110, 6.5.1), or if CGI
// confuses it with such a field or with one that the node sets, strips or trusts.
func (x *exchange) KeepsTrailer(name []byte) bool {
	hyphened, counted := appendHyphened(nil, name), map[string][]string{}
	x.p.o.Limiter.Rules().AddField(counted, borrow(name), "")
	return len(counted) == 0 && !http1.IsSpecial(hyphened) && httpguts.ValidTrailerHeader(borrow(hyphened))
}

// appendHyphened appends name with hyphens instead of odd bytes.
func appendHyphened(dst, name []byte) []byte {
	for _, c := range name {
		if odd(c) {
			c = '-'
		}
		dst = append(dst, c)
	}
	return dst
}
