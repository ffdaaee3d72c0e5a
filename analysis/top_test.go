package analysis

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/edgelimit/edge/rule"
)

// The frequent paths are remembered, even if there are very many.
func TestTopPaths(t *testing.T) {
	var r refusals
	var q replayedRequest
	for i := range 100_000 {
		q.entry.Path = fmt.Sprint("/random/", i)
		if i%10 == 0 {
			q.entry.Path = "/often"
		}
		q.now = int64(i)
		r.add(&q, rule.ClientPrefix{})
	}
	if len(r.paths) > maxPaths {
		t.Errorf("%d paths are remembered", len(r.paths))
	}
	if top := r.topPaths(1); len(top) != 1 || top[0] != (TopPath{"/often", 10_000}) {
		t.Errorf("top path %v", top)
	}
}

// Shares are those of the 1, 2, 5, 10 … clients with the most refusals, and of all.
func TestShares(t *testing.T) {
	r := refusals{clients: map[netip.Addr]*refusedClient{}}
	for i := range 120 {
		r.clients[netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})] = &refusedClient{TopClient{Requests: 1}, 0}
	}
	var got []int
	for _, s := range r.shares() {
		if got = append(got, s.Clients); s.Refused != uint64(s.Clients) {
			t.Errorf("%d refusals of %d clients with one each", s.Refused, s.Clients)
		}
	}
	if want := []int{1, 2, 5, 10, 20, 50, 100, 120}; !slices.Equal(got, want) {
		t.Errorf("shares of %v clients, want %v", got, want)
	}
}
