package proxy

import (
	"slices"

	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// odd reports whether a field's name has bytes other than letters, digits and hyphens.
func odd(name []byte) bool {
	return slices.ContainsFunc(name, func(c byte) bool {
		return c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z')
	})
}

// confuses reports whether CGI confuses the field called name with one that the node sets, strips, trusts or counts by.
func (p *Proxy) confuses(name []byte) bool {
	var first, second [64]byte
	means := rule.AppendCanonical(first[:0], name, true)
	rules := p.o.Limiter.Rules()
	return http1.IsSpecial(means) || string(means) == "Http2-Settings" ||
		rules.CountsHeader(borrow(means)) && !rules.CountsHeader(borrow(rule.AppendCanonical(second[:0], name, false)))
}
