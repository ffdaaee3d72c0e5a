package proxy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/proxy"
)

// The verdict shows which client the node sees: each case denies one address.
func TestClientAddress(t *testing.T) {
	if byHTTP2 {
		return // it needs no client
	}
	tests := []struct {
		name      string
		peer      string
		forwarded []string
		want      string
	}{
		{"no proxy in between", "198.51.100.1", nil, "198.51.100.1"},
		{"a client that claims another address", "198.51.100.1", []string{"203.0.113.9"}, "198.51.100.1"},
		{"a trusted proxy", "10.0.0.1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a trusted proxy that names nobody", "10.0.0.1", nil, "10.0.0.1"},
		{"two trusted proxies", "10.0.0.1", []string{"203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		{"what the client wrote itself", "10.0.0.1", []string{"192.0.2.66, 203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		{"several lines are one list", "10.0.0.1", []string{"192.0.2.66", "203.0.113.9", "10.0.0.2, 10.0.0.3"}, "203.0.113.9"},
		{"only trusted ones", "10.0.0.1", []string{"10.0.0.3,10.0.0.2"}, "10.0.0.3"},
		{"more proxies than there can be", "10.0.0.1", []string{"203.0.113.9", "10.0.0.9" + strings.Repeat(",10.0.0.8", 63)}, "10.0.0.9"},
		{"junk from the client", "10.0.0.1", []string{"<script>, 10.0.0.2"}, "10.0.0.2"},
		{"junk alone", "10.0.0.1", []string{"unknown"}, "10.0.0.1"},
		{"an empty line", "10.0.0.1", []string{""}, "10.0.0.1"},
		{"empty elements", "10.0.0.1", []string{"203.0.113.9,, "}, "10.0.0.1"},
		{"with a port", "10.0.0.1", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{"IPv6", "10.0.0.1", []string{"2001:db8::1"}, "2001:db8::1"},
		{"IPv6 with a port", "10.0.0.1", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"IPv6 in brackets", "10.0.0.1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"IPv4 in IPv6", "10.0.0.1", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"a peer that is IPv4 in IPv6", "::ffff:10.0.0.1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a trusted proxy that is IPv4 in IPv6", "10.0.0.1", []string{"203.0.113.9, ::ffff:10.0.0.2"}, "203.0.113.9"},
		{"likewise with a port", "10.0.0.1", []string{"203.0.113.9, [::ffff:10.0.0.2]:4711"}, "203.0.113.9"},
		{"a zone", "10.0.0.1", []string{"fe80::1%eth0"}, "fe80::1"},
		{"behind a translator", "10.0.0.1", []string{"64:ff9b::203.0.113.9"}, "203.0.113.9"},
		{"itself behind a translator", "64:ff9b::198.51.100.1", nil, "198.51.100.1"},
		{"behind another translator", "10.0.0.1", []string{"2001:db8:64:cb00:71:900::"}, "203.0.113.9"},
		{"beside its prefix", "10.0.0.1", []string{"2001:db8:65:cb00:71:900::"}, "2001:db8:65:cb00:71:900::"},
		{"a trusted IPv6 proxy", "2001:db8:aaaa::7", []string{"203.0.113.9"}, "203.0.113.9"},
	}
	for _, tt := range tests {
		p, _ := newProxy(t, fmt.Sprintf("rules: []\ndeny: [%q]", tt.want), "http://127.0.0.1:1", func(o *proxy.Options) {
			o.Trusted = []netip.Prefix{netip.MustParsePrefix("10.9.8.7/8"), netip.MustParsePrefix("2001:db8:aaaa::/48")}
			o.Client.NAT64 = &[]netip.Prefix{netip.MustParsePrefix("2001:db8:64::/48")}
		})
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(tt.peer), 1234).String()
		for _, line := range tt.forwarded {
			r.Header.Add("X-Forwarded-For", line)
		}
		if !p.Admit(r).Refused() {
			t.Errorf("%s: peer %s, X-Forwarded-For %q: the client is not %s", tt.name, tt.peer, tt.forwarded, tt.want)
		}
	}
}

// The origin gets the addresses, the host and the scheme of a request in fields of the node's own.
func TestForwardedHeaders(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
			fmt.Fprintf(w, "%s=%s\n", name, strings.Join(r.Header[name], "|"))
		}
	}
	claims := []string{"X-Forwarded-For", "203.0.113.9", "X-Forwarded-Host", "claimed.example", "X-Forwarded-Proto", "https", "Forwarded", "for=203.0.113.9"}
	for _, tt := range []struct {
		name    string
		trusted []netip.Prefix
		want    string
	}{
		{"from a client", nil, "X-Forwarded-For=127.0.0.1\nX-Forwarded-Host=HOST\nX-Forwarded-Proto=http\nForwarded=\n"},
		{"from a trusted proxy", []netip.Prefix{localhost}, "X-Forwarded-For=203.0.113.9, 127.0.0.1\nX-Forwarded-Host=claimed.example\nX-Forwarded-Proto=https\nForwarded=for=203.0.113.9\n"},
	} {
		url := front(t, noRules, echo, func(o *proxy.Options) { o.Trusted = tt.trusted })
		_, got := do(t, client(t), newRequest(t, "GET", url, nil, claims...))
		want := strings.ReplaceAll(tt.want, "HOST", strings.TrimPrefix(url, "http://"))
		if byHTTP3 {
			want = strings.ReplaceAll(want, "Proto=http\n", "Proto=https\n")
		}
		if got != want {
			t.Errorf("%s: the origin sees\n%s, want\n%s", tt.name, got, want)
		}
	}
}

// A trusted proxy's own requests, such as health checks, pass five a second, even while it is mitigated. Others count
// as the proxy's, so that a client gains nothing if it makes the proxy drop X-Forwarded-For. A request with
// X-Forwarded-For is never the proxy's own, whatever the field says.
func TestOwnRequestsOfAProxy(t *testing.T) {
	for name, connect := range map[string]func(*proxy.Proxy) (passes func(forwarded ...string) bool){
		"middleware": func(p *proxy.Proxy) func(...string) bool {
			return func(forwarded ...string) bool {
				r := httptest.NewRequest("GET", "/", nil)
				r.RemoteAddr = "10.0.0.1:1234"
				r.Header["X-Forwarded-For"] = forwarded
				return !p.Admit(r).Refused()
			}
		},
		"SPOP": func(p *proxy.Proxy) func(...string) bool {
			return func(forwarded ...string) bool {
				fields := ""
				for _, value := range forwarded {
					fields += "\x0fx-forwarded-for" + spopString(value)
				}
				var v variables
				p.NewAgent().Handle(message("edge-check", "method", "GET", "path", "/", "src", "10.0.0.1", "headers", fields+"\x00\x00"), &v)
				got := v.String()
				if strings.Contains(got, "remember") {
					t.Errorf("HAProxy would refuse all clients of the proxy: %s", got)
				}
				return !strings.Contains(got, "refused=true")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			now, problems := time.Now().Truncate(time.Second), map[string]string{}
			p, _ := newProxy(t, block("block", ""), "http://127.0.0.1:1", func(o *proxy.Options) {
				o.Trusted, o.Now = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, func() time.Time { return now }
				o.Notice = func(problem, text string) { problems[problem] = text }
			})
			ask := connect(p)
			passed := func(requests int, forwarded ...string) (n int) {
				for range requests {
					if ask(forwarded...) {
						n++
					}
				}
				return n
			}
			if n := passed(5); n != 5 || len(problems) > 0 {
				t.Errorf("%d health checks pass, want 5; problems: %v", n, problems)
			}
			if n := passed(300); n != 4 {
				t.Errorf("%d of 300 requests without a client pass, want one more than the threshold", n)
			}
			if text := problems["proxy_without_forwarded"]; !strings.Contains(text, "10.0.0.1") {
				t.Errorf("problems: %v", problems)
			}
			now = now.Add(time.Second)
			if n := passed(50); n != 5 {
				t.Errorf("%d requests of the mitigated proxy pass a second later, want 5", n)
			}
			now = now.Add(time.Second)
			for _, forwarded := range []string{"", "unknown", "203.0.113.9, unknown", "203.0.113.9, "} {
				if n := passed(1, forwarded); n != 0 {
					t.Errorf("X-Forwarded-For: %q of the mitigated proxy passes", forwarded)
				}
			}
			for _, trusted := range []string{"10.0.0.77", "203.0.113.9, 10.0.0.78" + strings.Repeat(", 10.0.0.8", 63)} {
				if n := passed(300, trusted); n != 4 {
					t.Errorf("X-Forwarded-For: %q: %d of 300 requests pass, want one more than the threshold", trusted, n)
				}
			}
			now = now.Add(time.Minute)
			if !ask("203.0.113.9") {
				t.Error("a client of the proxy is refused")
			}
			if now = now.Add(time.Second); !ask("203.0.113.10") || problems["proxy_without_forwarded"] != "" {
				t.Errorf("a minute later: %v", problems)
			}
		})
	}
}

// spopString encodes s as SPOP does.
func spopString(s string) string {
	if len(s) < 240 {
		return string([]byte{byte(len(s))}) + s
	}
	return string([]byte{0xf0 | byte(len(s)&15), byte((len(s) - 240) >> 4)}) + s
}
