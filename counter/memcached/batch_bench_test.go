package memcached_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/harness"
)

// The allocations of an exchange do not depend on the number of keys in the batch.
func TestExchangeAllocatesNothingForAKey(t *testing.T) {
	s := memcached.New(harness.StartMemcached(t).Addr, wire.Options{Timeout: 10 * time.Second})
	defer s.Close()
	const keys = 1024
	b := increments("key", keys, true)
	for i := range b.Increments {
		b.Reads = append(b.Reads, counter.Read{Item: b.Increments[i].Item})
	}
	exchange := func() {
		if err := s.Exchange(b); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	if n := testing.AllocsPerRun(20, exchange); n > keys/20 {
		t.Errorf("an exchange of %d keys allocates %v times", keys, n)
	}
}

// BenchmarkExchange exchanges full batches of one node one after the other.
func BenchmarkExchange(b *testing.B) {
	for _, make := range []bool{false, true} {
		b.Run(map[bool]string{false: "known keys", true: "possibly new keys"}[make], func(b *testing.B) {
			s := memcached.New(harness.StartMemcached(b).Addr, wire.Options{Timeout: 10 * time.Second})
			defer s.Close()
			const keys = 1024
			batch := increments("key", keys, true)
			if err := s.Exchange(batch); err != nil {
				b.Fatal(err)
			}
			for i := range batch.Increments {
				batch.Increments[i].Create = make
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Exchange(batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
		})
	}
}
