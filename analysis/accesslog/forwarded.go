package accesslog

import (
	"bytes"
	"net/netip"
)

// behindProxy reports whether the clients seem to be proxies: most lines have a text that looks like
// X-Forwarded-For, which then has the real clients, and nearly all clients have private addresses or there are many more
// addresses in X-Forwarded-For.
func (t trial) behindProxy(l layout) bool {
	entries, private := 0, 0
	clients, forwarded := map[string]int{}, map[string]int{}
	t.parse(l, 0, func(line []byte, r *record, reason string) {
		if reason != "" {
			return
		}
		entries++
		clients[string(r.client)]++
		if isPrivate(addressOf(r.client)) {
			private++
		}
		for text := range bytes.SplitSeq(line, []byte{'"'}) {
			if text = bytes.TrimSpace(text); isForwardedFor(text) {
				forwarded[string(firstOf(text))]++
			}
		}
	})
	listed := 0
	for client, n := range forwarded {
		if clients[client] == 0 {
			listed += n
		}
	}
	return listed*2 >= entries && entries > 0 && (private*20 >= entries*19 || len(forwarded) >= 4*len(clients))
}

// isForwardedFor reports whether text is a comma-separated list of addresses, and the first is public.
func isForwardedFor(text []byte) bool {
	for address := range bytes.SplitSeq(text, []byte{','}) {
		if !addressOf(firstOf(address)).IsValid() {
			return false
		}
	}
	return !isPrivate(addressOf(firstOf(text)))
}

var carrierGrade = netip.MustParsePrefix("100.64.0.0/10")

// isPrivate reports whether a cannot be a client on the Internet.
func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || carrierGrade.Contains(a)
}
