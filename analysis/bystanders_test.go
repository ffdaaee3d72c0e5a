package analysis_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/rule"
)

// Clients that are refused because of their network are bystanders, unless they exceed a limit of their own,
// even later or with refused requests.
func TestBystanders(t *testing.T) {
	from := func(last byte, n int, at time.Duration) []accesslog.Entry {
		list := requestsOf(fmt.Sprintf("192.0.2.%d", last), n, at, 10*time.Millisecond)
		for i := range list {
			list[i].Addr = netip.AddrFrom4([4]byte{192, 0, 2, last})
		}
		return list
	}
	entries := slices.Concat(
		from(1, 5, 0), from(2, 5, time.Second), from(3, 5, 2*time.Second), // 1 and 2, and one request of 3, use up the network's 10
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
			t.Errorf("rule client has bystanders: %+v", client.Bystanders)
		}
		if diff := cmp.Diff(&analysis.Bystanders{Requests: 2, Clients: 1}, network.Bystanders); diff != "" || network.Refused <= 2 {
			t.Errorf("%+v: %d refused, bystanders of the network (-want +got):\n%s", o, network.Refused, diff)
		}
		var b bytes.Buffer
		if err := got.Document().WriteText(&b); err != nil || strings.Count(b.String(), "bystanders ") != 1 {
			t.Errorf("bystanders are not in the report exactly once: error %v\n%s", err, b.String())
		}
	}
}

// The result does not depend on the number of goroutines, even if a client is a wider network than those that
// rules count by.
func TestNetworksOnSeveralCores(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var log []accesslog.Entry
	for i := range 6000 {
		addr := netip.AddrFrom4([4]byte{byte(10 + random.IntN(6)), byte(random.IntN(3)), byte(random.IntN(3)), byte(random.IntN(30))})
		if random.IntN(3) == 0 {
			addr = netip.AddrFrom16([16]byte{0: 0x20, 1: byte(random.IntN(6)), 3: byte(random.IntN(3)), 5: byte(random.IntN(2)), 7: byte(random.IntN(20))})
		}
		log = append(log, accesslog.Entry{Time: int64(i) * 20_000, Client: addr.String(), Addr: addr, Method: "GET", Path: "/", Status: 200})
	}
	for _, prefix := range []rule.ClientPrefix{{}, {IPv4: 8, IPv6: 24}} {
		on := func(cores int) *analysis.Enforcement {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			return enforce(t, analysis.EnforcementOptions{PoP: analysis.PoPOptions{Client: prefix}, ReportOptions: analysis.ReportOptions{Top: 40}, Rules: parse(t, `rules:
  - {id: client, characteristics: [ip], limits: [{threshold: 9, period: 1m}]}
  - {id: block, characteristics: [network:24/48], limits: [{threshold: 15, period: 1m}], min_clients: 3, action: shed}
  - {id: wide, characteristics: [network:16/32, method], limits: [{threshold: 60, period: 1m}], min_clients: 5, action: shed}
`)}, log)
		}
		want := on(1)
		if wide := want.Rules[2]; prefix.IPv4 == 0 && wide.Refused == 0 || want.Refused < 100 {
			t.Fatalf("%d requests are refused, %d by the /16 networks", want.Refused, wide.Refused)
		}
		if diff := cmp.Diff(want, on(5)); diff != "" {
			t.Errorf("clients of %+v (-one core +five):\n%s", prefix, diff)
		}
	}
}
