package async_test

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/bubble"
)

// An event is a request of one client.
type event struct {
	at     time.Time
	passed bool
}

// A promised is a limit whose promises are tested.
type promised struct {
	threshold int
	period    time.Duration
	n         int64 // sub-windows
	kind      counter.Kind
}

// over reports whether the estimate exceeds the threshold at a time, recomputed from all of
// events with nothing lost or late. Sub-windows are numbered from the epoch: those that
// are younger than the period count whole.
func (l promised) over(events []event, at time.Time) bool {
	p, now := l.period.Microseconds(), at.UnixMicro()
	latest := now * l.n / p
	var oldest, rest int64
	for i := len(events) - 1; i >= 0; i-- {
		age := latest - events[i].at.UnixMicro()*l.n/p
		if age > l.n {
			break
		}
		if age == l.n {
			oldest++
		} else {
			rest++
		}
	}
	left := (latest+1)*p - l.n*now // of the oldest, in parts of p
	switch l.kind {
	case counter.Fixed:
		left = 0
	case counter.WholeOldest:
		left = p
	}
	if l.kind == counter.WeightedRounded {
		return (oldest*left+rest*p)/p > int64(l.threshold)
	}
	estimate := big.NewRat(oldest*left+rest*p, p)
	return estimate.Cmp(big.NewRat(int64(l.threshold), 1)) > 0
}

// mostPassed returns the maximum number of passed requests in a trailing period.
func mostPassed(events []event, period time.Duration) int {
	return mostSent(slices.DeleteFunc(slices.Clone(events), func(e event) bool { return !e.passed }), period)
}

// mostSent returns the maximum number of sent requests in a trailing period.
func mostSent(events []event, period time.Duration) (most int) {
	first := 0
	for i, e := range events {
		for !events[first].at.Add(period).After(e.at) {
			first++
		}
		most = max(most, i+1-first)
	}
	return most
}

// countTime is the maximum time from a request until all nodes refuse.
const countTime = 10 * time.Millisecond

const clients = 2

// This test checks the two promises with random schedules: innocent clients are never refused, whatever fails
// or moves; and if nothing does, no client passes more often than the bound allows.
func TestPromises(t *testing.T) {
	check(t, func(rt *rapid.T) {
		threshold := rapid.IntRange(1, 20).Draw(rt, "threshold")
		period := time.Duration(rapid.IntRange(1, 10).Draw(rt, "period")) * time.Second
		// No sub-window is shorter than a second.
		l := promised{threshold: threshold, period: period, n: rapid.Int64Range(1, min(6, int64(period/time.Second))).Draw(rt, "sub-windows")}
		timeout := rapid.IntRange(0, 15).Draw(rt, "timeout")
		nodes, shards := rapid.IntRange(1, 4).Draw(rt, "nodes"), rapid.IntRange(1, 3).Draw(rt, "shards")
		faults, moves := rapid.Bool().Draw(rt, "faults"), rapid.Bool().Draw(rt, "moves")
		var careful [clients]bool // never exceed the threshold, however near they come
		for i := range careful {
			careful[i] = rapid.Bool().Draw(rt, "careful")
		}
		peers := rapid.Bool().Draw(rt, "peers")
		bubble.Test(t, func(t *testing.T) {
			p := startPop(t, nodes, shards, peers, fmt.Sprintf(
				"rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: %v, sub_windows: %d}], mitigation_timeout: %ds}]", threshold, period, l.n, timeout))
			defer p.stop()
			for _, s := range p.shards {
				s.loses = faults
			}
			time.Sleep(time.Duration(rapid.Int64Range(0, period.Microseconds()).Draw(rt, "phase")) * time.Microsecond)
			var events [clients][]event
			for range rapid.IntRange(1, 60).Draw(rt, "bursts") {
				gap := rapid.SampledFrom([]time.Duration{10 * time.Millisecond, period / 20, period / 3, period}).Draw(rt, "gap")
				time.Sleep(time.Duration(rapid.Int64Range(0, int64(gap)).Draw(rt, "pause")))
				if faults && rapid.IntRange(0, 9).Draw(rt, "fault") == 0 {
					s := p.shards[rapid.IntRange(0, shards-1).Draw(rt, "which")]
					s.kill()
					time.Sleep(time.Duration(rapid.IntRange(0, 500).Draw(rt, "down")) * time.Millisecond)
					s.start(&p.running)
				}
				if moves && rapid.IntRange(0, 4).Draw(rt, "move") == 0 {
					var out []string
					for i := range p.shards {
						if rapid.Bool().Draw(rt, "out") {
							out = append(out, fmt.Sprintf("s%d:11211", i))
						}
					}
					// Nodes change their rings at different moments, and some perhaps never.
					for _, l := range p.limiters[rapid.IntRange(0, nodes-1).Draw(rt, "first"):] {
						if err := l.SetOut(out...); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(rt, "until the next")) * time.Millisecond)
					}
				}
				client := rapid.IntRange(0, clients-1).Draw(rt, "client")
				for range rapid.IntRange(1, threshold+1).Draw(rt, "requests") {
					time.Sleep(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "µs")) * time.Microsecond)
					now := time.Now()
					if careful[client] && l.over(append(slices.Clip(events[client]), event{at: now}), now) {
						break
					}
					req := request(uint32(client))
					d := p.limiters[rapid.IntRange(0, nodes-1).Draw(rt, "node")].Decide(&req, now)
					events[client] = append(events[client], event{now, !d.Verdict.Refused()})
				}
			}
			for client := range clients {
				// If sub-windows do not last whole seconds, some requests count as older.
				short := period%(time.Duration(l.n)*time.Second) != 0
				l.check(rt, events[client], faults || moves || !peers || short)
			}
		})
	})
}

func (l promised) check(t *rapid.T, events []event, lossy bool) {
	innocent := true
	for i := range events {
		innocent = innocent && !l.over(events[:i+1], events[i].at)
	}
	refused := slices.ContainsFunc(events, func(e event) bool { return !e.passed })
	if innocent && refused {
		t.Fatalf("an innocent client was refused: %v", events)
	}
	if lossy {
		return
	}
	// K is derived from the sent requests, whatever the answers.
	k := mostSent(events, countTime)
	if most, bound := mostPassed(events, l.period), 2*(l.threshold+k)+1; most > bound {
		t.Fatalf("%d requests passed in %v, the bound is 2·(%d+%d)+1 = %d", most, l.period, l.threshold, k, bound)
	}
	// Once the threshold is exceeded, no client passes for longer than a count takes.
	var passed []event
	for _, e := range events {
		if !e.passed {
			continue
		}
		if n := len(passed); n > 0 && e.at.Sub(passed[n-1].at) > countTime && l.over(passed, e.at) {
			t.Fatalf("a request passed at %v although the estimate had been over for more than %v: %v", e.at, countTime, events)
		}
		passed = append(passed, e)
	}
}
