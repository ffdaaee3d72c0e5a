package async_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// nearest returns the clients near their threshold, with their remaining quota.
func (a *single) nearest(t *testing.T, n int) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, of := range a.Near(ctx, n) {
		all = append(all, fmt.Sprintf("%s %v: %d of %d", of.Rule.ID, of.Client, of.Remaining, of.Limit.Threshold))
	}
	return all
}

// Keys with at most an eighth of their threshold left are listed until they leave their window, are mitigated,
// or are forgotten.
func TestNear(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := startSingle(t, fmt.Sprintf(perMinute, 16, "1m"), func(o *limit.Options, _ *mitigation.Options) { o.LogClients = true })
		defer a.close()
		time.Sleep(time.Minute - time.Duration(time.Now().UnixNano()%int64(time.Minute)))
		for client, n := range map[uint32]int{1: 13, 2: 14, 3: 16, 4: 17} {
			for range n {
				a.decide(client)
			}
		}
		time.Sleep(time.Second)
		client := func(i uint32) netip.Addr { return request(i).Addr }
		id := a.Rules().Rules()[0].ID
		want := []string{fmt.Sprintf("%s %v: 0 of 16", id, client(3)), fmt.Sprintf("%s %v: 2 of 16", id, client(2))}
		if diff := cmp.Diff(want, a.nearest(t, 10)); diff != "" {
			t.Errorf("keys near their threshold (-want +got):\n%s", diff)
		}
		if got := a.nearest(t, 1); len(got) != 1 || got[0] != want[0] {
			t.Errorf("the nearest key is %q, want %q", got, want[0])
		}
		counted := fmt.Sprintf("# HELP edge_requests_counted_total Requests that this node counted, by rule; a request with a cost counts that many times.\n# TYPE edge_requests_counted_total counter\nedge_requests_counted_total{rule=%q} 60\n", id)
		if err := testutil.GatherAndCompare(a.reg, strings.NewReader(counted), "edge_requests_counted_total"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if got := a.nearest(t, 10); got != nil {
			t.Errorf("after two windows, %q are still near", got)
		}
		for range 15 {
			a.decide(5)
		}
		time.Sleep(time.Second)
		a.SetRules(parse(t, withIDs("another")))
		if got := a.nearest(t, 10); got != nil {
			t.Errorf("%q are near under a rule that was removed", got)
		}
	})
}
