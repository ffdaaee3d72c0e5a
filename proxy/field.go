package proxy

import (
	"net/textproto"
	"slices"
	"strings"

	"github.com/edgelimit/edge/proxy/http1"
)

// odd reports whether a field's name has bytes other than letters, digits and hyphens.
func odd(name []byte) bool {
	return slices.ContainsFunc(name, func(c byte) bool { return c != '-' && !isAlphanumeric(c) })
}

// shadows reports whether CGI confuses the field called name with one that the node sets, strips,
// trusts or counts by. connection has the lines of Connection.
func (p *Proxy) shadows(name string, connection []string) bool {
	rules := p.o.Limiter.Rules()
	means := meaning(name)
	return http1.IsSpecial([]byte(means)) || means == "Http2-Settings" || named(connection, means) || rules.CountsHeader(means) && !rules.CountsHeader(textproto.CanonicalMIMEHeaderKey(name))
}

// meaning returns the name with hyphens that CGI cannot tell from name, in Go's canonical form.
func meaning(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.Map(func(c rune) rune {
		if c < 0x80 && isAlphanumeric(byte(c)) {
			return c
		}
		return '-'
	}, name))
}

// named reports whether the lines of a Connection field name a field.
func named(connection []string, field string) bool {
	for _, line := range connection {
		for name := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(name, " \t"), field) {
				return true
			}
		}
	}
	return false
}
