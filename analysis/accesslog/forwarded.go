package accesslog

import (
	"bytes"
	"net/netip"
	"strings"
)

// behindProxy reports whether nearly all lines have the same private client, and their last quoted text
// looks like X-Forwarded-For, which then has the real clients. It returns a pattern that reads them, or ""
// if none was found.
func behindProxy(format string, l layout, lines [][]byte) (pattern string, proxied bool) {
	if p, prefixed := l.(prefixed); prefixed {
		for i, line := range lines {
			if rest, ok := p.cut(line); ok && len(rest) > 0 {
				lines[i] = rest
			}
		}
		l = p.layout
	}
	if format != "combined" {
		return "", false
	}
	clients, entries, forwarded := map[string]int{}, 0, 0
	var example []byte
	for _, line := range lines {
		r := record{}
		if l.parse(line, &r) != "" {
			continue
		}
		entries++
		clients[string(r.client)]++
		if at, ok := lastQuoted(line); ok && isForwardedFor(line[at:]) {
			forwarded++
			example = line
		}
	}
	most := ""
	for client, n := range clients {
		if n > clients[most] {
			most = client
		}
	}
	if !isPrivate(addressOf([]byte(most))) || clients[most]*20 < entries*19 || forwarded*2 < entries {
		return "", false
	}
	pattern = forwardedPattern(example)
	p, err := newPattern(pattern)
	if err != nil || matches(p, lines, nil)*10 < entries*9 {
		return "", true
	}
	return pattern, true
}

// lastQuoted returns the offset of the last quoted text in a line.
func lastQuoted(s []byte) (at int, ok bool) {
	end := bytes.LastIndexByte(s, '"')
	if end < 0 {
		return 0, false
	}
	at = bytes.LastIndexByte(s[:end], '"') + 1
	return at, at > 0
}

// isForwardedFor reports whether s begins with a comma-separated list of addresses and a quote.
func isForwardedFor(s []byte) bool {
	text, _, _ := bytes.Cut(s, []byte{'"'})
	for address := range bytes.SplitSeq(text, []byte{','}) {
		if !addressOf(withoutPort(bytes.TrimSpace(address))).IsValid() {
			return false
		}
	}
	return true
}

var carrierGrade = netip.MustParsePrefix("100.64.0.0/10")

// isPrivate reports whether a cannot be a client on the Internet.
func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || carrierGrade.Contains(a)
}

// forwardedPattern returns a pattern for a line of the combined format with more fields, of which the last quoted one
// has the client.
func forwardedPattern(line []byte) string {
	var b strings.Builder
	b.WriteString(`$proxy - $remote_user [$time_local] "$request" $status $bytes "$http_referer" "$http_user_agent"`)
	last, _ := lastQuoted(line)
	for i, s := 0, line; ; i++ {
		_, rest := cutWord(s)
		if len(s) > 0 && s[0] == '"' {
			_, rest, _ = cutQuoted(s)
			rest = bytes.TrimPrefix(rest, []byte{' '})
		}
		switch at := len(line) - len(s); {
		case at+1 == last:
			b.WriteString(` "$http_x_forwarded_for"`)
			return b.String()
		case len(s) == 0 || at > last:
			return b.String()
		case i < 10:
			// As in combined: client, identity, user, time and zone, request, status, bytes, referer, agent.
		case s[0] == '"':
			b.WriteString(` "$more"`)
		default:
			b.WriteString(` $more`)
		}
		s = rest
	}
}
