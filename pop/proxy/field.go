package proxy

import (
	"net/textproto"
	"slices"
	"strings"
)

// shadowable are the fields that the node sets, strips or trusts, in Go's canonical form, whose names have
// bytes that CGI replaces.
var shadowable = map[string]bool{
	"Content-Length":      true,
	"Http2-Settings":      true,
	"Keep-Alive":          true,
	"Proxy-Authenticate":  true,
	"Proxy-Authorization": true,
	"Proxy-Connection":    true,
	"Transfer-Encoding":   true,
	"X-Forwarded-For":     true,
	"X-Forwarded-Host":    true,
	"X-Forwarded-Proto":   true,
}

// odd reports whether a field's name has bytes other than letters, digits and hyphens.
func odd(name []byte) bool {
	return slices.ContainsFunc(name, func(c byte) bool { return c != '-' && !isAlphanumeric(c) })
}

// shadows reports whether CGI confuses the field called name with one that the node sets, strips,
// trusts or counts by. connection has the lines of Connection.
func (p *Proxy) shadows(name string, connection []string) bool {
	rules := p.o.Limiter.Rules()
	means := meaning(name)
	return shadowable[means] || named(connection, means) || rules.CountsHeader(means) && !rules.CountsHeader(textproto.CanonicalMIMEHeaderKey(name))
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
