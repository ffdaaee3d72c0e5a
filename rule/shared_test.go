package rule_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
	"pgregory.net/rapid"
)

// from returns a GET request from an address, with headers "Name: value".
func from(addr string, fields ...string) rule.Request {
	req := rule.Request{Method: "GET", Path: "/", Header: map[string][]string{}}
	req.Addr, _ = netip.ParseAddr(addr)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		req.Header[name] = append(req.Header[name], value)
	}
	return req
}

// Addresses of the same network have the same key, others have different ones.
func TestNetworkKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ipv4, ipv6 := rapid.IntRange(1, 31).Draw(t, "ipv4"), rapid.IntRange(1, 64).Draw(t, "ipv6")
		set, err := rulefile.Parse("r.yaml", []byte(withCharacteristics(fmt.Sprintf("[network:%d/%d]", ipv4, ipv6))))
		if err != nil {
			t.Fatal(err)
		}
		bits := map[bool]int{true: ipv4, false: ipv6}
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes")
			if rapid.Bool().Draw(t, "IPv4") {
				return netip.AddrFrom4([4]byte(b))
			}
			return netip.AddrFrom16([16]byte(b)).Unmap()
		})
		a := addr.Draw(t, "a")
		b := addr.Draw(t, "b")
		if rapid.Bool().Draw(t, "flip a bit") {
			raw, at := a.AsSlice(), rapid.IntRange(0, a.BitLen()-1).Draw(t, "bit")
			raw[at/8] ^= 1 << (7 - at%8)
			b, _ = netip.AddrFromSlice(raw)
			b = b.Unmap()
		}
		network, _ := a.Prefix(bits[a.Is4()])
		one, _ := key(set.Rules()[0], rule.Request{Addr: a})
		other, _ := key(set.Rules()[0], rule.Request{Addr: b})
		if same := one == other; same != network.Contains(b) {
			t.Fatalf("%v and %v have the same key: %t; their networks: IPv4 /%d, IPv6 /%d", a, b, same, ipv4, ipv6)
		}
	})
}

// The longest prefix determines the label, and rules do not apply to addresses without one.
func TestLabels(t *testing.T) {
	set := load(t, map[string]string{
		"rules.yaml": "labels: {asn: {file: asn.txt}}\n" + withCharacteristics("[label:asn]"),
		"asn.txt":    "\ufeff192.0.2.0/24 AS64500 # a provider\r\n192.0.2.128/25,Example Hosting\n\n2001:db8::/32\tAS64500\n",
	})
	of := func(addr string) string {
		k, counted := key(set.Rules()[0], from(addr))
		return fmt.Sprint(counted, k)
	}
	if one := of("192.0.2.1"); one != of("2001:db8::1") || one == of("192.0.2.129") || !strings.Contains(of("192.0.2.129"), "Example Hosting") {
		t.Errorf("keys: %q, %q, %q", one, of("2001:db8::1"), of("192.0.2.129"))
	}
	if k, counted := key(set.Rules()[0], from("198.51.100.1")); counted {
		t.Errorf("an address without a label has the key %q", k)
	}
	req, err := set.Rules()[0].RequestOf("Example Hosting")
	if k, _ := key(set.Rules()[0], req); err != nil || fmt.Sprint(true, k) != of("192.0.2.200") {
		t.Errorf("RequestOf(Example Hosting) = %v, %v", req, err)
	}
	if _, err := set.Rules()[0].RequestOf("AS1"); err == nil {
		t.Error("RequestOf(AS1) has no error")
	}
}

// A request is counted by the first alternative that it has. Alternatives never share values.
func TestFirst(t *testing.T) {
	r := keyed(t, "[{first: [cookie:sid, {header: x-key, missing: skip}, ip]}, host]")
	keys := map[string]string{}
	for name, req := range map[string]rule.Request{
		"cookie":               from("192.0.2.1", "Cookie: sid=1", "X-Key: 2"),
		"other cookie":         from("192.0.2.1", "Cookie: sid=2"),
		"header":               from("192.0.2.1", "X-Key: 1"),
		"address":              from("192.0.2.1", "Cookie: other=1"),
		"another address":      from("192.0.2.2"),
		"no address":           from(""),
		"two cookies":          from("192.0.2.1", "Cookie: sid=3; sid=4"),
		"an empty cookie":      from("192.0.2.1", "Cookie: sid="),
		"cookie of four bytes": from("192.0.2.1", "Cookie: sid=\xc0\x00\x02\x01"),
		"header of four bytes": from("192.0.2.1", "X-Key: \xc0\x00\x02\x01"),
	} {
		k, counted := key(r, req)
		if !counted {
			t.Errorf("%s is not counted", name)
		}
		if same, twice := keys[k]; twice {
			t.Errorf("%s and %s have the same key", name, same)
		}
		keys[k] = name
	}
	a, _ := key(r, from("192.0.2.1", "Cookie: sid=1"))
	b, _ := key(r, from("192.0.2.9", "Cookie: sid=1"))
	if a != b {
		t.Error("the same cookie from two addresses has two keys")
	}
	skips := keyed(t, "[{first: [cookie:sid, {header: x-key, missing: skip}]}]")
	if k, counted := key(skips, from("192.0.2.1")); counted {
		t.Errorf("a request with no alternative has the key %q, but the rule must skip it", k)
	}
}

func TestWidth(t *testing.T) {
	order := []string{"[ip]", "[network:24/48]", "[network:16/32, path]", "[network:8/16]", "[label:a]", "[host]"}
	last := -1
	for i, each := range order {
		set := load(t, map[string]string{"rules.yaml": "labels: {a: {file: a.txt}}\n" + withCharacteristics(each), "a.txt": "192.0.2.0/24 x\n"})
		r := set.Rules()[0]
		if got, parent := r.Width(), r.Parent(); got <= last || parent != (i > 0 && i < len(order)-1) {
			t.Errorf("Width of %s = %d, Parent = %t; the previous width is %d", each, got, parent, last)
		}
		last = r.Width()
	}
	for _, each := range []string{"[ip, network:24/48]", "[host, header:a]", "[{first: [header:a, ip]}]"} {
		if got := keyed(t, each).Width(); got != 0 {
			t.Errorf("Width of %s = %d", each, got)
		}
	}
}
