package rule_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
)

func host(h string) string {
	req := rule.Request{Host: h}
	req.Canonicalize(rule.ClientPrefix{})
	return req.Host
}

func pathOf(p string) string {
	req := rule.Request{Path: p}
	req.Canonicalize(rule.ClientPrefix{})
	return req.Path
}

func TestCanonicalHost(t *testing.T) {
	for _, test := range []struct{ name, host, want string }{
		{"canonical", "example.com", "example.com"},
		{"empty", "", ""},
		{"upper case", "WWW.Example.COM", "www.example.com"},
		{"port", "example.com:8080", "example.com"},
		{"colon without port", "example.com:", "example.com"},
		{"port alone", ":8080", ""},
		{"final dot", "example.com.", "example.com"},
		{"final dot and port", "Example.com.:443", "example.com"},
		{"several final dots", "example.com..", "example.com"},
		{"dots alone", "..", ""},
		{"IPv4", "192.0.2.1:80", "192.0.2.1"},
		{"IPv6", "[2001:db8::1]", "[2001:db8::1]"},
		{"IPv6 with port", "[2001:db8::1]:443", "[2001:db8::1]"},
		{"IPv6 in upper case", "[2001:DB8::A]:443", "[2001:db8::a]"},
		{"IPv6 in full", "[2001:0db8:0:0:0:0:0:1]", "[2001:db8::1]"},
		{"IPv6 with a zone", "[FE80::1%25eth0]", "[fe80::1%25eth0]"},
		{"IPv6 with a long zone", "[fe80::1%" + strings.Repeat("z", 300) + "]", "[fe80::1%" + strings.Repeat("z", 300) + "]"},
		{"IPv6 without brackets", "2001:db8::1", "2001:db8::1"},
		{"brackets without IPv6", "[Example]:80", "[example]"},
		{"empty brackets", "[]", "[]"},
		{"bracket not closed", "[2001:db8::1", "[2001:db8::1"},
		{"text after the bracket", "[::1]x", "[::1]"},
		{"letters beyond ASCII stay", "BÜCHER.example", "bÜcher.example"},
		{"Kelvin sign is not a k", "\u212a.example", "\u212a.example"},
		{"bytes that are not UTF-8 stay", "A\xff.example", "a\xff.example"},
		{"very long", strings.Repeat("A", 1000), strings.Repeat("a", 1000)},
	} {
		if got := host(test.host); got != test.want {
			t.Errorf("%s: Host %q becomes %q, want %q", test.name, test.host, got, test.want)
		}
	}
}

func TestCanonicalPath(t *testing.T) {
	for _, test := range []struct{ name, path, want string }{
		{"canonical", "/a/b", "/a/b"},
		{"root", "/", "/"},
		{"empty", "", "/"},
		{"of OPTIONS", "*", "*"},
		{"star in a path", "/*", "/*"},
		{"without slash", "a/b", "/a/b"},
		{"trailing slash", "/a/", "/a/"},
		{"escaped letter", "/%61", "/a"},
		{"escaped letters of several bytes", "/%C3%bc", "/ü"},
		{"escaped slash", "/a%2Fb", "/a/b"},
		{"escaped slash makes an empty segment", "/a/%2Fb", "/a/b"},
		{"escaped dots", "/a/%2e%2E/b", "/b"},
		{"everything escaped", "%2Fa%2F%2e%2e%2Fb", "/b"},
		{"escaped percent sign is decoded once", "/%2541", "/%41"},
		{"escaped escape of dots is decoded once", "/a/%252e%252e/b", "/a/%2e%2e/b"},
		{"escape in parts", "/%%34%31", "/%41"},
		{"no hexadecimal digits", "/%zz/%4", "/%zz/%4"},
		{"percent sign at the end", "/a%", "/a%"},
		{"plus sign is not a space", "/a+b", "/a+b"},
		{"question mark", "/a%3Fb", "/a?b"},
		{"NUL and line break", "/%00%0a", "/\x00\n"},
		{"doubled slashes", "//a///b", "/a/b"},
		{"doubled slashes at the end", "/a//", "/a/"},
		{"only slashes", "///", "/"},
		{"dot segment", "/a/./b", "/a/b"},
		{"dot segment at the end", "/a/.", "/a/"},
		{"dot dot segment", "/a/b/../c", "/a/c"},
		{"dot dot segment at the end", "/a/b/..", "/a/"},
		{"dot dot segments beyond the root", "/../../a/..", "/"},
		{"dot dot segments after doubled slashes", "/a//../b", "/b"},
		{"dots only", "..", "/"},
		{"dot file", "/.well-known/acme", "/.well-known/acme"},
		{"two dots and a name", "/a/..b", "/a/..b"},
		{"three dots", "/a/...", "/a/..."},
		{"name that ends in dots", "/a../b.", "/a../b."},
		{"backslash", `/a\..\b`, `/a\..\b`},
		{"very long", "/" + strings.Repeat("a", 1000) + "//b", "/" + strings.Repeat("a", 1000) + "/b"},
	} {
		if got := pathOf(test.path); got != test.want {
			t.Errorf("%s: path %q becomes %q, want %q", test.name, test.path, got, test.want)
		}
	}
}

var (
	percent  = regexp.MustCompile(`%([0-9A-Fa-f]{2})?`)
	brackets = regexp.MustCompile(`(?s)^(\[[^\]]*\]).*$`)
	capital  = regexp.MustCompile(`[A-Z]`)
)

// referencePath is a simple, slow version of what Canonicalize does with paths.
func referencePath(p string) string {
	if p == "*" {
		return p
	}
	// A percent sign that does not begin an escape stands for itself.
	decoded, err := url.PathUnescape(percent.ReplaceAllStringFunc(p, func(s string) string {
		if s == "%" {
			return "%25"
		}
		return s
	}))
	if err != nil {
		panic(err)
	}
	cleaned := path.Clean("/" + decoded)
	last := decoded[strings.LastIndexByte(decoded, '/')+1:]
	if cleaned != "/" && (last == "" || last == "." || last == "..") {
		cleaned += "/"
	}
	return cleaned
}

func FuzzCanonicalPath(f *testing.F) {
	for _, p := range []string{"", "*", "/", "/a/b", "/%2e%2e/%2F", "/%2541", "//a/./../b/", "/a/..b/.well-known", "/%zz%%41", "/a/%", "..", "/\xff%ff", "/a?b#c"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if len(p) > rule.MaxOddSegments/5 {
			return // it may be malformed: see TestLengthOfPaths and MaxOddSegments
		}
		if got, want := pathOf(p), referencePath(p); got != want {
			t.Errorf("path %q becomes %q, want %q", p, got, want)
		}
	})
}

// referenceHost is a simple, slow version of what Canonicalize does with hosts.
func referenceHost(h string) string {
	if m := brackets.FindStringSubmatch(h); m != nil {
		h = m[1]
		if addr, err := netip.ParseAddr(h[1 : len(h)-1]); err == nil && addr.Zone() == "" {
			return "[" + addr.String() + "]"
		}
	} else {
		if before, _, ok := strings.Cut(h, ":"); ok && strings.Count(h, ":") == 1 {
			h = before
		}
		h = strings.TrimRight(h, ".")
	}
	return capital.ReplaceAllStringFunc(h, strings.ToLower)
}

func FuzzCanonicalHost(f *testing.F) {
	for _, h := range []string{"", "example.com", "EXAMPLE.com.:80", "[2001:DB8::1]:443", "[::1", "[]", "2001:db8::1", "a.:b:c", "ÄÖ\xff\u212a", "[1.2.3.4]", "[::ffff:1.2.3.4]x", "..", "a..:1"} {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, h string) {
		got, want := host(h), referenceHost(h)
		if got != want {
			t.Errorf("host %q becomes %q, want %q", h, got, want)
		}
		if again := host(got); again != got {
			t.Errorf("host %q becomes %q, which becomes %q", h, got, again)
		}
	})
}

func TestClientPrefix(t *testing.T) {
	one := rule.Rule{ID: "a", Characteristics: []rule.Characteristic{{Kind: rule.IP}}}
	// The client as AppendKey sees it: "" if there is none.
	client := func(addr netip.Addr, p rule.ClientPrefix) string {
		req := rule.Request{Addr: addr}
		req.Canonicalize(p)
		key, counted := one.AppendKey(nil, &req)
		if !counted {
			t.Errorf("AppendKey does not count %v", addr)
		}
		// version, length and bytes of the ID, kind, length of the name
		value, ok := bytes.CutPrefix(key, []byte("\x01\x00\x00\x00\x01a\x01\x00\x00\x00\x00"))
		if !ok || len(value) < 4 {
			t.Fatalf("key of %v is %x", addr, key)
		}
		if value[3] == 0 {
			return ""
		}
		bits := ""
		if value = value[8:]; len(value)%4 == 1 {
			bits = fmt.Sprintf("/%d", value[len(value)-1])
			value = value[:len(value)-1]
		}
		got, ok := netip.AddrFromSlice(value)
		if !ok {
			t.Fatalf("key of %v is %x", addr, key)
		}
		return got.String() + bits
	}
	for _, test := range []struct {
		name, addr string
		prefix     rule.ClientPrefix
		want       string
	}{
		{"IPv4 by default", "192.0.2.77", rule.ClientPrefix{}, "192.0.2.77"},
		{"individual IPv4 address", "192.0.2.77", rule.ClientPrefix{IPv4: 32, IPv6: 64}, "192.0.2.77"},
		{"IPv4 by network", "192.0.2.77", rule.ClientPrefix{IPv4: 24, IPv6: 64}, "192.0.2.0/24"},
		{"IPv4 by one bit", "192.0.2.77", rule.ClientPrefix{IPv4: 1, IPv6: 64}, "128.0.0.0/1"},
		{"IPv4 in IPv6", "::ffff:192.0.2.77", rule.ClientPrefix{IPv4: 24, IPv6: 64}, "192.0.2.0/24"},
		{"IPv6 by default", "2001:db8:1:2:3:4:5:6", rule.ClientPrefix{}, "2001:db8:1:2::"},
		{"individual IPv6 address", "2001:db8:1:2:3:4:5:6", rule.ClientPrefix{IPv4: 32, IPv6: 128}, "2001:db8:1:2:3:4:5:6/128"},
		{"IPv6 by /56", "2001:db8:1:2ff:3:4:5:6", rule.ClientPrefix{IPv4: 32, IPv6: 56}, "2001:db8:1:200::/56"},
		{"IPv6 by one bit", "ffff::", rule.ClientPrefix{IPv4: 32, IPv6: 1}, "8000::/1"},
		{"IPv6 with a zone", "fe80::1%eth0", rule.ClientPrefix{}, "fe80::"},
		{"individual IPv6 address with a zone", "fe80::1%eth0", rule.ClientPrefix{IPv6: 128}, "fe80::1/128"},
		{"IPv6 that ends in IPv4", "::192.0.2.77", rule.ClientPrefix{IPv4: 24, IPv6: 128}, "::c000:24d/128"},
		{"more bits than there are", "192.0.2.77", rule.ClientPrefix{IPv4: 33, IPv6: 129}, "192.0.2.77"},
	} {
		if got := client(netip.MustParseAddr(test.addr), test.prefix); got != test.want {
			t.Errorf("%s: the client of %s with %+v is %s, want %s", test.name, test.addr, test.prefix, got, test.want)
		}
	}
	if got := client(netip.Addr{}, rule.ClientPrefix{}); got != "" {
		t.Errorf("the client of no address is %s, want none", got)
	}
}

// A network never shares counts with the client at its first address, which nodes with other prefixes
// count.
func TestNetworkIsNotItsFirstClient(t *testing.T) {
	one := rule.Rule{ID: "a", Characteristics: []rule.Characteristic{{Kind: rule.IP}}}
	for _, test := range []struct {
		addr string
		a, b rule.ClientPrefix
	}{
		{"192.0.2.0", rule.ClientPrefix{}, rule.ClientPrefix{IPv4: 24}},
		{"192.0.0.0", rule.ClientPrefix{IPv4: 16}, rule.ClientPrefix{IPv4: 24}},
		{"2001:db8::", rule.ClientPrefix{}, rule.ClientPrefix{IPv6: 56}},
		{"2001:db8::", rule.ClientPrefix{IPv6: 128}, rule.ClientPrefix{IPv6: 64}},
	} {
		var keys [2]string
		for i, p := range []rule.ClientPrefix{test.a, test.b} {
			req := rule.Request{Addr: netip.MustParseAddr(test.addr)}
			req.Canonicalize(p)
			key, _ := one.AppendKey(nil, &req)
			keys[i] = string(key)
		}
		if keys[0] == keys[1] {
			t.Errorf("%s has the same key with %+v and %+v", test.addr, test.a, test.b)
		}
	}
}

func TestCanonicalizeUnmapsTheAddress(t *testing.T) {
	req := rule.Request{Addr: netip.MustParseAddr("::ffff:192.0.2.1")}
	req.Canonicalize(rule.ClientPrefix{})
	if want := netip.MustParseAddr("192.0.2.1"); req.Addr != want {
		t.Errorf("Addr becomes %v, want %v", req.Addr, want)
	}
}
