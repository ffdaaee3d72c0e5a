package proxy

import (
	"github.com/edgelimit/edge/proxy/http1"
)

// odd reports whether c is neither a letter nor a digit nor a hyphen.
func odd(c byte) bool { return c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') }

// confuses reports whether CGI cannot distinguish the field called name, which has odd bytes, from one that the node
// sets, strips, trusts or counts by.
func (p *Proxy) confuses(name []byte) bool {
	var buf [64]byte
	hyphened := append(buf[:0], name...)
	for i, c := range hyphened {
		if odd(c) {
			hyphened[i] = '-'
		}
	}
	return http1.IsSpecial(hyphened) || p.o.Limiter.Rules().Confuses(borrow(name))
}
