package proxy

import (
	"slices"

	"github.com/edgelimit/edge/proxy/http1"
)

// odd reports whether a field's name has bytes other than letters, digits and hyphens.
func odd(name []byte) bool {
	return slices.ContainsFunc(name, func(c byte) bool { return c != '-' && !isAlphanumeric(c) })
}

// confuses reports whether CGI confuses the field called name with one that the node sets, strips, trusts or counts by.
func (p *Proxy) confuses(name []byte) bool {
	var first, second [64]byte
	means := canonical(first[:0], name, true)
	rules := p.o.Limiter.Rules()
	return http1.IsSpecial(means) || string(means) == "Http2-Settings" ||
		rules.CountsHeader(borrow(means)) && !rules.CountsHeader(borrow(canonical(second[:0], name, false)))
}

// canonical appends name in Go's canonical form. If cgi is set, it appends the name with hyphens that CGI cannot tell
// from name.
func canonical(dst, name []byte, cgi bool) []byte {
	first := true // of a word
	for _, c := range name {
		switch {
		case cgi && !isAlphanumeric(c):
			c = '-'
		case first && 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		case !first && 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		dst = append(dst, c)
		first = c == '-'
	}
	return dst
}
