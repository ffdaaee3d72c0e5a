package operate_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/peers"
	"github.com/edgelimit/edge/pop/shards"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// newOperator returns the operator of node n1, with a rule that counts by ip and a shard. Nothing runs.
func newOperator(t testing.TB) *operate.Operator {
	t.Helper()
	return newOperatorOf(t, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 1, period: 1m}]}]")
}

// newOperatorOf returns the operator of a node with rules.
func newOperatorOf(t testing.TB, text string) *operate.Operator {
	t.Helper()
	rules, err := rulefile.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := counter.NewSecret("sixteen bytes or more")
	if err != nil {
		t.Fatal(err)
	}
	o := limit.Options{
		Secret: secret, Rules: rules, Table: mitigation.New(mitigation.Options{Size: 1 << 17, ID: secret.ID}), Now: time.Now,
		Logger: slog.New(slog.DiscardHandler), Publish: func(mitigation.Record) {}, LogClients: true,
	}
	l, err := limit.New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	ring := shards.New(shards.Options{
		Addrs: []shards.Address{shards.Memcached("a:1")}, Set: l.SetShards, Problem: func(string) {}, Unfit: func(string) {}, Now: time.Now, Logger: o.Logger,
	})
	return &operate.Operator{
		Name: "n1", Logger: o.Logger, History: operate.NewHistory(prometheus.NewRegistry(), time.Now), Limiter: l, Table: o.Table, Secret: o.Secret, Ring: ring, Peers: peers.New("n1", false, time.Now, o.Logger, nil), LogClients: true, Now: time.Now,
		Ready:        func() ([]string, error) { return nil, nil },
		Certificates: func() []operate.Certificate { return nil },
		OwnStatus:    func() (s peers.Status) { return s },
	}
}

// withMitigations returns the operator of a node with many mitigations, some of which end and begin at the same time.
func withMitigations(t testing.TB, many int) *operate.Operator {
	t.Helper()
	o := newOperator(t)
	now := time.Now()
	for i := range many {
		r := mitigation.Record{Start: int64(i%97) * 1e6, Lifetime: 24 * time.Hour, Deadline: now.Add(time.Hour + time.Duration(i%89)*time.Minute), Node: 7, ByHand: true}
		r.Key = counter.Key{byte(i), byte(i >> 8)}
		binary.BigEndian.PutUint32(r.Key[8:], uint32(i))
		if !o.Limiter.Learn(r, "peer", now) {
			t.Fatal("a record is not new")
		}
	}
	return o
}

// The pages of a list have each mitigation once, in order.
func TestPages(t *testing.T) {
	const many = 1000
	n := withMitigations(t, many)
	for sort, before := range map[string]func(a, b *operate.Mitigation) bool{
		"end":   func(a, b *operate.Mitigation) bool { return a.Left >= b.Left-60 }, // pages are made at different times
		"start": func(a, b *operate.Mitigation) bool { return !a.Start.Before(b.Start) },
		"key":   func(a, b *operate.Mitigation) bool { return a.Key < b.Key },
	} {
		for _, size := range []int{7, 100} {
			seen := map[string]bool{}
			var last *operate.Mitigation
			q := operate.Query{Sort: sort, Limit: size}
			for {
				page, err := n.Mitigations(q)
				if err != nil || page.Total != many || len(page.Mitigations) > size || len(page.Mitigations) == 0 {
					t.Fatalf("by %s: %d of %d, %v", sort, len(page.Mitigations), page.Total, err)
				}
				for i := range page.Mitigations {
					m := &page.Mitigations[i]
					if seen[m.Key] || last != nil && !before(last, m) {
						t.Fatalf("by %s, %d on a page: %+v comes after %+v", sort, size, m, last)
					}
					seen[m.Key], last = true, m
				}
				if q.Cursor = page.Next; q.Cursor == "" {
					break
				}
			}
			if len(seen) != many {
				t.Errorf("by %s: %d mitigations, want %d", sort, len(seen), many)
			}
		}
	}
	for _, cursor := range []string{"x", "-", "1-", "1-abcd", "x-00000000000000000000000000000000", fmt.Sprintf("%d0-%032d", int64(1<<62), 0)} {
		if _, err := n.Mitigations(operate.Query{Cursor: cursor}); err == nil {
			t.Errorf("cursor %q: no error", cursor)
		}
	}
	page, err := n.Mitigations(operate.Query{Key: "AB00", Node: fmt.Sprintf("%016x", 7)})
	if err != nil || page.Total != 1 || !slices.Equal([]string{page.Mitigations[0].Key[:4]}, []string{"ab00"}) {
		t.Errorf("by key and node: %+v, %v", page, err)
	}
}

func BenchmarkPage(b *testing.B) {
	for _, many := range []int{10_000, 100_000} {
		n := withMitigations(b, many)
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			for b.Loop() {
				if _, err := n.Mitigations(operate.Query{Limit: 100}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
