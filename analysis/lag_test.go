package analysis

import (
	"net/netip"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/limit"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A record that arrives late ends at the other node when it ends at the node that made it, not later by the lag.
func TestLagDoesNotProlongMitigations(t *testing.T) {
	rules, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: [{threshold: 5, period: 1s}], mitigation_timeout: 20s}]"))
	if err != nil {
		t.Fatal(err)
	}
	const lag = 7 * time.Second
	s, err := NewSimulation(PoPOptions{Nodes: 2, Lag: lag}, rules)
	if err != nil {
		t.Fatal(err)
	}
	client := netip.MustParseAddr("192.0.2.1")
	refuses := func(at time.Duration, node uint16) bool {
		e := accesslog.Entry{Time: 1e12 + at.Microseconds(), Client: client.String(), Addr: client, Method: "GET", Host: "example.com", Path: "/", Status: 200}
		var d limit.Decision
		s.decide(&d, &e, client, node)
		return d.Verdict.Refused()
	}
	for range 7 {
		refuses(0, 0)
	}
	for _, want := range []struct {
		at      time.Duration
		refused bool
	}{{lag + time.Second, true}, {19 * time.Second, true}, {21 * time.Second, false}, {20*time.Second + lag - time.Second, false}} {
		if got := refuses(want.at, 1); got != want.refused {
			t.Errorf("%v after a mitigation of 20 s began at the other node, a request is refused: %t, want %t", want.at, got, want.refused)
		}
	}
}
