package analysis

import (
	"fmt"
	"slices"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// Clients without an address have one each, in a network of its own.
func TestAddressesOfClientsWithout(t *testing.T) {
	var seen []string
	for _, client := range []string{"0", "1", "2", "256", "36028797018963967", "36028797018963968", "example.com", "-", "a user"} {
		req := new(requests).of(&accesslog.Entry{Client: client})
		req.Canonicalize(rule.ClientPrefix{})
		if !req.Addr.IsPrivate() {
			t.Errorf("client %s has %v, which somebody may have", client, req.Addr)
		}
		seen = append(seen, req.Client().String())
	}
	if seen[0] != "fd00::" || seen[3] != "fd00:0:0:100::" {
		t.Errorf("clients are %v", seen)
	}
	slices.Sort(seen)
	if n := len(slices.Compact(seen)); n != 9 {
		t.Errorf("%d addresses of 9 clients", n)
	}
}

// Headers of an entry come as a node would be sent them.
func TestHeadersOfAnEntry(t *testing.T) {
	var r requests
	for range 2 {
		req := r.of(&accesslog.Entry{Header: []accesslog.Field{{Name: "Cookie", Value: "a=1"}, {Name: "X-Key", Value: "k"}, {Name: "Cookie", Value: "b=2"}}})
		if got := fmt.Sprint(req.Header); got != "map[Cookie:[a=1 b=2] X-Key:[k]]" {
			t.Errorf("header %s", got)
		}
	}
	if req := r.of(&accesslog.Entry{}); req.Header != nil {
		t.Errorf("header of an entry without: %v", req.Header)
	}
}
