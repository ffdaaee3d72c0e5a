package rule_test

import (
	"net/netip"
	"testing"

	"github.com/edgelimit/edge/rule"
)

// Addresses are embedded as in the table of RFC 6052, section 2.4.
func TestAddressesBehindATranslator(t *testing.T) {
	for prefix, addr := range map[string]string{
		"2001:db8::/32":           "2001:db8:c000:221::",
		"2001:db8:100::/40":       "2001:db8:1c0:2:21::",
		"2001:db8:122::/48":       "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56":   "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64":   "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96":   "2001:db8:122:344::192.0.2.33",
		"64:ff9b::/96":            "64:ff9b::192.0.2.33",
		"64:ff9b:1:abcd::/64":     "64:ff9b:1:abcd:c0:2:2100::",
		"2001:db8:ffff:ffff::/96": "::ffff:192.0.2.33",
	} {
		parsed, err := rule.ParseNAT64(prefix)
		if err != nil {
			t.Fatal(err)
		}
		p := rule.ClientPrefix{NAT64: &[]netip.Prefix{parsed}}
		if got := p.Unmap(netip.MustParseAddr(addr)); got != netip.MustParseAddr("192.0.2.33") {
			t.Errorf("%s behind %s is %v", addr, prefix, got)
		}
		req := rule.Request{Addr: netip.MustParseAddr(addr)}
		if req.Canonicalize(p); req.Client() != netip.MustParseAddr("192.0.2.33") {
			t.Errorf("the client of %s is %v", addr, req.Client())
		}
	}
	for _, other := range []string{"64:ff9b:1::192.0.2.33", "64:ff9b::1:192.0.2.33", "2001:db8::1", "192.0.2.33"} {
		if addr := netip.MustParseAddr(other); (rule.ClientPrefix{}).Unmap(addr) != addr {
			t.Errorf("%s is taken for another address", other)
		}
	}
	for _, text := range []string{"64:ff9b::1/96", "64:ff9b::/95", "64:ff9b::", "10.0.0.0/8", "::ffff:10.0.0.0/104", ""} {
		if p, err := rule.ParseNAT64(text); err == nil {
			t.Errorf("ParseNAT64(%q) = %v", text, p)
		}
	}
}

// IPv4 networks in the spelling of IPv6, even that of all addresses, are IPv4 networks.
func TestMappedNetworks(t *testing.T) {
	for text, want := range map[string]string{"::ffff:0.0.0.0/96": "0.0.0.0/0", "::ffff:192.0.2.0/120": "192.0.2.0/24", "::ffff:192.0.2.1": "192.0.2.1/32"} {
		if got, err := rule.ParsePrefix(text); err != nil || got.String() != want {
			t.Errorf("ParsePrefix(%q) = %v, %v; want %s", text, got, err, want)
		}
	}
}
