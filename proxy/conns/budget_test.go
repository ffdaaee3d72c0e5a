package conns_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/conns"
)

// A closable is a connection that records that it was closed.
type closable struct {
	net.Conn
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

// The connection that holds the most is closed first, and of equal ones the oldest: of the client if its bytes are
// exceeded, of the client that holds the most if the bytes of all are.
func TestBudget(t *testing.T) {
	a, b, trusted := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.Addr{}
	type hold struct {
		client netip.Addr
		bytes  int
	}
	for _, test := range []struct {
		name   string
		holds  []hold // of connections 0, 1, ...
		bytes  int    // that are held at the end
		closed string
	}{
		{"within", []hold{{a, 30}, {a, 30}, {b, 40}}, 100, "[]"},
		{"a client's largest", []hold{{a, 20}, {a, 31}, {b, 40}, {a, 10}}, 70, "[1]"},
		{"a client's oldest", []hold{{a, 25}, {a, 25}, {a, 25}}, 50, "[0]"},
		{"a client's oldest ones", []hold{{a, 20}, {a, 20}, {a, 20}, {a, 20}, {a, 20}, {a, 20}, {a, 20}}, 60, "[0 1 2 3]"},
		{"a client's largest is the last", []hold{{a, 20}, {a, 21}, {a, 22}}, 41, "[2]"},
		{"more than a client may hold alone", []hold{{b, 1}, {a, 61}}, 1, "[1]"},
		{"the largest client's largest", []hold{{a, 20}, {b, 59}, {trusted, 30}}, 50, "[1]"},
		{"the largest client, not the largest connection", []hold{{a, 30}, {b, 20}, {b, 16}, {trusted, 35}}, 81, "[1]"},
		{"the largest client may have small ones", []hold{{a, 45}, {b, 14}, {b, 13}, {b, 20}, {trusted, 9}}, 81, "[3]"},
		{"a trusted proxy counts for the node only", []hold{{trusted, 45}, {trusted, 45}, {a, 20}}, 65, "[0]"},
		{"several", []hold{{a, 20}, {b, 20}, {a, 20}, {b, 20}, {trusted, 70}, {a, 20}, {b, 11}}, 91, "[4 0]"},
	} {
		bubble.Test(t, func(t *testing.T) {
			closed := []bool{}
			budget := conns.NewBudget(100, 60, func(client bool) { closed = append(closed, client) })
			order := []int{}
			var all []*closable
			var holders []*conns.Holder
			for _, h := range test.holds {
				c := new(closable)
				all, holders = append(all, c), append(holders, budget.Holder(c, h.client))
				holders[len(holders)-1].Hold(h.bytes)
				synctest.Wait()
				for i, c := range all {
					if c.closed {
						order = append(order, i)
						c.closed = false
						holders[i].Hold(1000) // what it still reads no longer counts
					}
				}
			}
			if got := fmt.Sprint(order); got != test.closed || budget.Bytes() != test.bytes || len(closed) != len(order) {
				t.Errorf("%s: closed %s, %d bytes are held; want %s, %d", test.name, got, budget.Bytes(), test.closed, test.bytes)
			}
			for _, h := range holders {
				h.Hold(0)
			}
			if n := budget.Bytes(); n != 0 {
				t.Errorf("%s: %d bytes are held after the end, want none", test.name, n)
			}
		})
	}
}

// Whatever connections hold, the sums stay within the bounds, and each connection that is closed is the largest of its
// client or of the node.
func TestBudgetKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := conns.NewBudget(1000, 300, func(bool) {})
		model := map[*conns.Holder]int{}
		var holders []*conns.Holder
		for range 20 {
			client := netip.AddrFrom4([4]byte{192, 0, 2, rapid.ByteRange(1, 6).Draw(t, "client")})
			holders = append(holders, budget.Holder(new(closable), client))
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			h := rapid.SampledFrom(holders).Draw(t, "holder")
			n := rapid.IntRange(0, 200).Draw(t, "bytes")
			h.Hold(n)
			model[h] = n
			sum := 0
			for _, n := range model {
				sum += n
			}
			if got := budget.Bytes(); got > 1000 || got > sum {
				t.Fatalf("%d bytes are held, want at most 1000 and at most %d", got, sum)
			}
		}
		for _, h := range holders {
			h.Hold(0)
		}
		if n := budget.Bytes(); n != 0 {
			t.Fatalf("%d bytes are held after the end, want none", n)
		}
	})
}

// A connection that one of two budgets closes no longer counts in the other, which would close another one in vain.
func TestBudgetsBeside(t *testing.T) {
	var full, heavy int
	places := conns.NewBudget(2, 0, func(bool) { full++ })
	memory := conns.NewBudget(100, 0, func(bool) { heavy++ }).Beside(places)
	client := netip.MustParseAddr("192.0.2.1")
	for range 3 {
		place := places.Holder(new(closable), client)
		held := place.Beside(memory)
		place.Hold(1)
		held.Hold(50)
	}
	if full != 1 || heavy != 0 || places.Bytes() != 2 || memory.Bytes() != 100 {
		t.Errorf("%d are closed for a place and %d for memory, and %d hold %d bytes; want 1, 0, 2 and 100", full, heavy, places.Bytes(), memory.Bytes())
	}
}
