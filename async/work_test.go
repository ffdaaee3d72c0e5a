package async_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// stored returns the value of a key in a's shard.
func (a *single) stored(t *testing.T, key string) []byte {
	t.Helper()
	s := memcached.New("s:1", wire.Options{Dial: a.pipe.Dial})
	defer s.Close()
	return harness.Values(t, s, key)[key]
}

// minuteKey returns the key of a client's counter of this minute.
func (a *single) minuteKey(client uint32) string {
	limit := counter.Limit{Period: 60e6, Layout: counter.Plain}
	number, _ := counter.Window(time.Now(), limit.Period)
	return a.secret.CounterItem(a.key(client), limit, number).String()
}

// Requests that were provably not sent are sent once when the shard is back. Until then the node
// reports no quota.
func TestUnsentCountsAreSentLater(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		a := startSingle(t, fmt.Sprintf(perMinute, 100, "0s"), nil)
		defer a.close()
		remaining := func() (uint64, bool) {
			d := a.decide(1)
			time.Sleep(10 * time.Millisecond)
			q := a.Quotas(nil, &d, time.Now())
			return q[0].Remaining, q[0].Known
		}
		a.down.Store(true)
		for range 5 {
			if n, known := remaining(); known {
				t.Errorf("%d requests remain although the previous counts are not known", n)
			}
			time.Sleep(time.Second)
		}
		if keys, oldest := a.Backlog(); keys != 1 || oldest < 5*time.Second {
			t.Errorf("%d keys wait, the oldest request for %v, want one, for 5 s", keys, oldest)
		}
		if n := value(t, a.reg, "edge_counting_lag_seconds", ""); n != 0 {
			t.Errorf("%v replies of a shard that is down have a lag", n)
		}
		a.down.Store(false)
		time.Sleep(2 * time.Second)
		if got := a.stored(t, a.minuteKey(1)); strings.TrimRight(string(got), " ") != "5" {
			t.Errorf("the shard has counted %q requests, want 5", got)
		}
		if n, known := remaining(); !known || n != 94 {
			t.Errorf("%d requests remain, known = %t, want 94", n, known)
		}
		if n := value(t, a.reg, "edge_increments_total", "unknown"); n != 0 {
			t.Errorf("%v increments have an unknown outcome", n)
		}
	})
}

// A record in the shard that is greater than this node's own stays there, and the node
// learns it.
func TestGreaterRecordStaysStored(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*mitigation.Record)
		stays  bool
	}{
		{"a later end", func(r *mitigation.Record) { r.Lifetime = time.Hour }, true},
		{"a lift", func(r *mitigation.Record) { r.Lifted, r.Lifetime = true, 20*time.Second }, true},
		{"an earlier end", func(r *mitigation.Record) { r.Lifetime = 20 * time.Second }, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			time.Sleep(time.Second)
			a := startSingle(t, fmt.Sprintf(perMinute, 5, "1m"), nil)
			defer a.close()
			a.decide(1)
			time.Sleep(10 * time.Millisecond) // it has looked for a record
			now := time.Now()
			other := mitigation.Record{Key: a.key(1), Node: 7, Start: now.UnixMicro()}
			other.Why = mitigation.Why{Limit: counter.Limit{Threshold: 5, Period: 60e6, Layout: counter.Plain}, Cur: 6}
			tt.change(&other)
			s := memcached.New("s:1", wire.Options{Dial: a.pipe.Dial})
			defer s.Close()
			key := a.secret.RecordItem(a.key(1))
			if err := s.Update(key, func([]byte) ([]byte, int32) { return other.AppendStored(nil), 3600 }); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				a.decide(1)
			}
			time.Sleep(10 * time.Millisecond)
			if stays := bytes.Equal(a.stored(t, key.String()), other.AppendStored(nil)); stays != tt.stays {
				t.Errorf("%s: the other node's record is still stored: %t, want %t", tt.name, stays, tt.stays)
			}
			held, _ := a.table.Held(a.key(1), time.Now())
			if (held.Node == 7) != tt.stays || held.Lifted != (other.Lifted && tt.stays) {
				t.Errorf("%s: the node holds %+v", tt.name, held)
			}
		})
	}
}

// A mitigation that another node starts while this one lifts the previous one stays stored, and
// this node learns it.
func TestLiftKeepsLaterMitigations(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		var a *single
		var stored []byte
		a = startSingle(t, fmt.Sprintf(perMinute, 5, "1m"), func(o *limit.Options, _ *mitigation.Options) {
			o.Publish = func(r mitigation.Record) {
				if !r.Lifted {
					return
				}
				r.Lifted, r.Generation, r.Node, r.Lifetime = false, r.Generation+1, 7, time.Minute
				r.Why = mitigation.Why{Limit: counter.Limit{Threshold: 5, Period: 60e6, Layout: counter.Plain}, Cur: 6}
				stored = r.AppendStored(nil)
				s := memcached.New("s:1", wire.Options{Dial: a.pipe.Dial})
				defer s.Close()
				if err := s.Update(a.secret.RecordItem(r.Key), func([]byte) ([]byte, int32) { return stored, 3600 }); err != nil {
					t.Error(err)
				}
			}
		})
		defer a.close()
		for range 6 {
			a.decide(1)
		}
		time.Sleep(10 * time.Millisecond)
		if _, err := a.Lift(a.key(1), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // the lift is stored
		if got := a.stored(t, a.secret.RecordItem(a.key(1)).String()); stored == nil || !bytes.Equal(got, stored) {
			t.Errorf("stored is %x, want %x", got, stored)
		}
		if held, _ := a.table.Held(a.key(1), time.Now()); held.Node != 7 || held.Lifted {
			t.Errorf("the node holds %+v", held)
		}
	})
}

// A rule that is removed between a request and its counting no longer counts.
func TestRequestsOfRemovedRule(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := startSingle(t, fmt.Sprintf(perMinute, 100, "1m"), nil) // requests near the threshold would not wait to be counted
		defer a.close()
		for range 5 {
			a.decide(1)
		}
		a.SetRules(parse(t, withIDs("other")))
		time.Sleep(time.Second)
		for name, want := range map[string]float64{"edge_increments_total": 0, "edge_tracked_keys": 0, "edge_mitigation_records": 0} {
			if n := value(t, a.reg, name, ""); n != want {
				t.Errorf("%s = %v, want %v", name, n, want)
			}
		}
	})
}

// A shard that never answers delays the end of Run by at most Options.Drain and the round trips in
// flight, however many requests wait for it. Requests that were not sent are counted as dropped, including
// those of evicted keys.
func TestRunEndsBesideAStalledShard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const keys, timeout, drain = 20000, time.Second, 3 * time.Second
		reg := prometheus.NewRegistry()
		stalled := shardThatStalls(timeout, wire.NewMetrics(reg))
		defer stalled.Close()
		a := startSingle(t, fmt.Sprintf(perMinute, 100, "0s"), func(o *limit.Options, _ *mitigation.Options) {
			o.Shards, o.TrackedKeys, o.Queue, o.Drain = []async.Shard{stalled}, keys, 2*keys, drain
		})
		defer a.close()
		for i := range uint32(keys) {
			a.decide(i)
		}
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		a.end()
		if took := time.Since(start); took < drain || took > drain+3*timeout {
			t.Errorf("Run returned after %v, want %v and the timeouts of one key", took, drain)
		}
		dropped, tried := value(t, a.reg, "edge_increments_dropped_total", ""), value(t, reg, "edge_increments_total", "unknown")
		if dropped == 0 || tried == 0 || dropped+tried != keys {
			t.Errorf("of %[2]d requests, %[1]v were counted as dropped and %[3]v were tried", dropped, keys, tried)
		}
		if value(t, a.reg, "edge_tracked_keys_evicted_total", "") == 0 {
			t.Error("no key was evicted")
		}
	})
}

// shardThatStalls returns a shard that stalls but never counts as down.
func shardThatStalls(timeout time.Duration, metrics *wire.Metrics) *memcached.Client {
	return memcached.New("s:1", wire.Options{Timeout: timeout, Failures: 1 << 20, Metrics: metrics, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			p := make([]byte, 1<<10)
			_, err := far.Read(p)
			for _, _ = io.WriteString(far, "VERSION 1\r\n"); err == nil; {
				_, err = far.Read(p)
			}
		}()
		return near, nil
	}})
}

// If two active records have the same action, the one that ends last decides, then the first rule in the files.
func TestWhichRecordDecides(t *testing.T) {
	table := mitigation.New(mitigation.Options{})
	l, err := limit.New(limit.Options{Table: table, Rules: parse(t, `
rules:
  - {id: path, characteristics: [ip, path], limits: [{threshold: 5, period: 1m}]}
  - {id: host, characteristics: [ip, host], limits: [{threshold: 5, period: 1m}]}
  - {id: ban, characteristics: [ip], limits: [{threshold: 5, period: 1m}], action: shadow_ban}
`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	req := request(1)
	req.Canonicalize(rule.ClientPrefix{})
	for _, tt := range []struct {
		name            string
		path, host, ban time.Duration // remaining time of each rule's record
		want            string
	}{
		{"they end together", time.Minute, time.Minute, 0, "path"},
		{"the first lasts longer", 2 * time.Minute, time.Minute, 0, "path"},
		{"the second lasts longer", 2 * time.Minute, 3 * time.Minute, 0, "host"},
		{"a less severe one lasts longest", 2 * time.Minute, 3 * time.Minute, time.Hour, "host"},
	} {
		for i, left := range []time.Duration{tt.path, tt.host, tt.ban} {
			what, _ := l.Rules().Rules()[i].AppendKey(nil, &req)
			table.Merge(mitigation.Record{Key: counter.Secret{}.Tag(what), Start: now.UnixMicro(), Why: exceeded, Lifetime: left, Deadline: now.Add(left)}, now)
		}
		if d := l.Decide(&req, now); d.Verdict != limit.Blocked || d.Rule.ID != tt.want {
			t.Errorf("%s: %v by %+v, want %s", tt.name, d.Verdict, d.Rule, tt.want)
		}
	}
}

// When a node stops, the counts of networks that it held back are sent.
func TestHeldCountsAreSentAtTheEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		shard := mapShard{values: map[counter.Item]uint64{}}
		l, _, _ := newLimiter(t, `rules: [{id: net, characteristics: ["network:24/56"], limits: [{threshold: 1000, period: 1m}]}]`, shard)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		req := request(1)
		l.Decide(&req, time.Now())
		stop()
		running.Wait()
		if len(shard.values) != 1 {
			t.Errorf("the shard has %d counters, want that of the network", len(shard.values))
		}
	})
}
