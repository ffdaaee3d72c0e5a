package proxy

import (
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
