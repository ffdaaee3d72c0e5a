package analysis

import (
	"fmt"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/rule"
)

// Each client without an address gets one in its own network, even if a large network is one client.
func TestClientsWithoutAddress(t *testing.T) {
	clients := []string{"0", "1", "2", "256", "65536", "7", "007", "36028797018963967", "36028797018963968", "example.com", "-", "a user"}
	for _, prefix := range []rule.ClientPrefix{{}, {IPv6: 48}, {IPv6: 128}} {
		seen := map[string]string{}
		for _, client := range clients {
			req := new(requests).at(&accesslog.Entry{Client: client}, (&accesslog.Entry{Client: client}).Address())
			req.Canonicalize(prefix)
			if !req.Addr.IsPrivate() {
				t.Errorf("client %s has %v, want a private address", client, req.Addr)
			}
			addr := req.Client().String()
			if other, known := seen[addr]; known {
				t.Errorf("clients %s and %s are the same with %+v: %s", client, other, prefix, addr)
			}
			seen[addr] = client
		}
		if prefix == (rule.ClientPrefix{}) && (seen["fd00::"] != "0" || seen["fd40::"] != "1") {
			t.Errorf("clients are %v", seen)
		}
	}
}

// Header fields of an entry are those that a node would receive.
func TestHeadersOfAnEntry(t *testing.T) {
	r := requests{fields: true}
	for range 2 {
		req := r.at(&accesslog.Entry{Header: []accesslog.Field{{Name: "Cookie", Value: "a=1"}, {Name: "X-Key", Value: "k"}, {Name: "Cookie", Value: "b=2"}}}, (&accesslog.Entry{Header: []accesslog.Field{{Name: "Cookie", Value: "a=1"}, {Name: "X-Key", Value: "k"}, {Name: "Cookie", Value: "b=2"}}}).Address())
		if got := fmt.Sprint(req.Header); got != "map[Cookie:[a=1 b=2] X-Key:[k]]" {
			t.Errorf("header %s", got)
		}
	}
	if req := r.at(&accesslog.Entry{}, (&accesslog.Entry{}).Address()); req.Header != nil {
		t.Errorf("header %v of an entry without header fields", req.Header)
	}
}
