package analysis_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
)

// Clients that are refused for their network are bystanders, unless they exceed a limit of their own, be it later or
// with requests that are refused.
func TestBystanders(t *testing.T) {
	from := func(last byte, n int, at time.Duration) []accesslog.Entry {
		list := asks(fmt.Sprintf("192.0.2.%d", last), n, at, 10*time.Millisecond)
		for i := range list {
			list[i].Addr = netip.AddrFrom4([4]byte{192, 0, 2, last})
		}
		return list
	}
	entries := slices.Concat(
		from(1, 5, 0), from(2, 5, time.Second), from(3, 5, 2*time.Second), // 1 and 2 use up the network's 10, with one of 3
		from(4, 2, 3*time.Second), from(5, 20, 4*time.Second), // both are refused, and 5 exceeds its own 6
		from(3, 20, time.Hour), // so does 3
	)
	for _, o := range []analysis.PoPOptions{{}, {Nodes: 3, Lag: time.Millisecond}} {
		got := enforce(t, analysis.EnforcementOptions{PoP: o, Rules: parse(t, `rules:
  - {id: client, characteristics: [ip], limits: [{threshold: 6, period: 1m}]}
  - {id: network, characteristics: [network:24/48], limits: [{threshold: 10, period: 1m}], action: block}
`)}, entries)
		client, network := got.Rules[0], got.Rules[1]
		if client.Bystanders != nil {
			t.Errorf("a rule by client has %+v", client.Bystanders)
		}
		if diff := cmp.Diff(&analysis.Bystanders{Requests: 2, Clients: 1}, network.Bystanders); diff != "" || network.Refused <= 2 {
			t.Errorf("%+v: bystanders of the network (-want +got), of %d refused requests:\n%s", o, network.Refused, diff)
		}
		var b bytes.Buffer
		if err := got.Document().WriteText(&b); err != nil || strings.Count(b.String(), "bystanders ") != 1 {
			t.Errorf("the report does not tell of bystanders once: %v\n%s", err, b.String())
		}
	}
}
