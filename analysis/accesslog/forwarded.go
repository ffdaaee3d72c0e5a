package accesslog

import (
	"bytes"
	"net/netip"
)

// behindProxy reports whether nearly all lines have the same client, with a private address, and their last quoted text
// looks like X-Forwarded-For, which then has the real clients.
func behindProxy(format string, l layout, lines [][]byte) bool {
	if format != "combined" {
		return false
	}
	clients, entries, forwarded := map[string]int{}, 0, 0
	for _, line := range lines {
		r := record{}
		if l.parse(line, &r) != "" {
			continue
		}
		entries++
		clients[string(r.client)]++
		if isForwardedFor(lastQuoted(line)) {
			forwarded++
		}
	}
	most := ""
	for client, n := range clients {
		if n > clients[most] {
			most = client
		}
	}
	return isPrivate(addressOf([]byte(most))) && clients[most]*20 >= entries*19 && forwarded*2 >= entries
}

// lastQuoted returns the last quoted text in a line.
func lastQuoted(s []byte) []byte {
	end := max(0, bytes.LastIndexByte(s, '"'))
	return s[bytes.LastIndexByte(s[:end], '"')+1 : end]
}

// isForwardedFor reports whether text is a comma-separated list of addresses.
func isForwardedFor(text []byte) bool {
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
