package proxy

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A problem with the proxies in front is reported when nearly all requests or connections show it, and
// withdrawn when they no longer do.
func TestEnvironment(t *testing.T) {
	proxy, client := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("203.0.113.7")
	for _, tt := range []struct {
		name string
		look func(s *environment, i int)
		want string // problems
	}{
		{"clients connect to the node", func(s *environment, i int) {
			s.look(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), false, false)
		}, ""},
		{"one client that sends no X-Forwarded-For", func(s *environment, i int) { s.look(client, false, false) }, ""},
		{"a proxy that is not trusted", func(s *environment, i int) { s.look(proxy, false, i%20 != 0) }, "untrusted_proxy"},
		{"two proxies that are not trusted", func(s *environment, i int) {
			s.look(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 2)}), false, true)
		}, "untrusted_proxy"},
		{"many clients that have proxies of their own", func(s *environment, i int) {
			s.look(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), false, true)
		}, ""},
		{"a trusted proxy that names clients", func(s *environment, i int) { s.look(proxy, true, true) }, ""},
		{"a trusted proxy that names nobody", func(s *environment, i int) { s.look(proxy, true, false) }, ""},
		{"a PROXY header", func(s *environment, _ int) {
			s.open(proxy, []byte("PROXY TCP4 203.0.113.7 10.0.0.2 1 80\r\nGET / HTTP/1.1\r\n"))
		}, "unexpected_proxy_header"},
		{"a PROXY header, version 2", func(s *environment, _ int) { s.open(proxy, []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c")) }, "unexpected_proxy_header"},
		{"a PROXY header before TLS", func(s *environment, _ int) { s.open(proxy, []byte("PROXY")) }, "unexpected_proxy_header"},
		{"a scanner that tries one", func(s *environment, i int) {
			s.open(client, []byte([]string{"PROXY TCP4 ", "GET / HTTP/1.1"}[min(i%10, 1)]))
		}, ""},
		{"a method that begins similarly", func(s *environment, _ int) { s.open(client, []byte("PROP")) }, ""},
	} {
		open := map[string]string{}
		s := &environment{note: func(problem, text string) {
			if open[problem] = text; text == "" {
				delete(open, problem)
			}
		}}
		for i := range 2 * looks {
			tt.look(s, i)
		}
		var got []string
		for problem, text := range open {
			got = append(got, problem)
			if !strings.Contains(text, proxy.String()) && !strings.Contains(text, "10.0.0.0") {
				t.Errorf("%s: the text does not name the proxy: %s", tt.name, text)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, open, tt.want)
		}
		for i := range 2 * looks { // it was put right
			s.look(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), false, false)
			s.open(client, []byte("GET / HTTP/1.1"))
		}
		if len(open) > 0 {
			t.Errorf("%s: %v, although it was put right", tt.name, open)
		}
	}
}

// However many requests arrive, the node examines few of them.
func TestFewRequestsAreExamined(t *testing.T) {
	s, now, due := &environment{note: func(string, string) {}}, time.Unix(1_700_000_000, 0), 0
	for i := range 100_000 {
		if s.due(now.Add(time.Duration(i) * 10 * time.Microsecond)) {
			due++
		}
	}
	if due != 100 {
		t.Errorf("%d requests are looked at in a second, want 100", due)
	}
}

// Reports are missing after 20 requests in a minute without one, or in ten minutes if there has been one. A proxy
// with few requests causes no notice.
func TestMissingReports(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		name    string
		n       int           // requests
		every   time.Duration // between two of them
		first   bool          // a report comes before
		missing bool
	}{
		{"many in a short time", 1000, 59 * time.Millisecond, false, false},
		{"many in a minute", 1000, 61 * time.Millisecond, false, true},
		{"few in a long time", 19, time.Hour, false, false},
		{"twenty in a long time", 20, time.Hour, false, true},
		{"nine minutes after a report", 10_000, 54 * time.Millisecond, true, false},
		{"more than ten minutes after a report", 10_000, 61 * time.Millisecond, true, true},
	} {
		problem := ""
		s := &environment{note: func(_, text string) { problem = text }}
		if tt.first {
			s.ask(start)
			s.report()
		}
		for i := range tt.n {
			s.ask(start.Add(time.Duration(i) * tt.every))
		}
		if missing := problem != ""; missing != tt.missing {
			t.Errorf("%s: %q", tt.name, problem)
		}
		if s.report(); problem != "" {
			t.Errorf("%s: %q after a report", tt.name, problem)
		}
	}
}
