package proxy_test

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/rule"
)

// A report counts even if its key has been mitigated since the request passed, whichever proxy sends it: the estimate
// takes longer to return to the threshold.
func TestReportWhileMitigated(t *testing.T) {
	for name, connect := range map[string]func(*proxy.Proxy) (report func()){
		"check endpoint": func(p *proxy.Proxy) (report func()) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			serveCheck(t, p, ln, proxy.CheckOptions{})
			a := &asker{t, client(t), "http://" + ln.Addr().String(), "/login"}
			return func() { a.report("192.0.2.1", "401", "X-Edge-Verdict", "passed") }
		},
		"SPOP": func(p *proxy.Proxy) (report func()) {
			agent := p.NewAgent()
			return func() {
				m := message("edge-report", "method", "POST", "path", "/login", "src", "192.0.2.1", "status", "401", "verdict", "passed")
				agent.Handle(m, new(variables))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var limiter *limit.Limiter
			p, _ := newProxy(t, "rules: [{id: login, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 3, period: 7d}]}]", "http://127.0.0.1:1", func(o *proxy.Options) {
				o.Trusted = append(o.Trusted, localhost)
				limiter = o.Limiter
			})
			report := connect(p)
			wait := func() time.Duration {
				d := limiter.Look(&rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "POST", Path: "/login"}, time.Now())
				return d.RetryAfter(time.Now())
			}
			for range 4 {
				report()
			}
			harness.Until(t, "the client is refused", patience, time.Millisecond, func() bool { return wait() > 0 })
			first := wait()
			for range 96 {
				report()
			}
			// An estimate of 4 takes a quarter of the week to return to 3; one of 100 takes 97% of
			// it.
			harness.Until(t, "the client is refused for days longer than "+strconv.Itoa(int(first.Hours()))+" h", patience, time.Millisecond, func() bool {
				return wait() > first+4*24*time.Hour
			})
		})
	}
}
