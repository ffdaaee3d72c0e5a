package async_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A metered shard counts its exchanges. Without versions, it is like a memcached that runs with -C.
type metered struct {
	async.Shard
	unversioned bool
	exchanges   atomic.Int64
}

func (s *metered) Exchange(b *counter.Batch) error {
	s.exchanges.Add(1)
	err := s.Shard.Exchange(b)
	for i := range b.Reads {
		if s.unversioned {
			b.Reads[i].CAS = 0
		}
	}
	time.Sleep(time.Millisecond)
	return err
}

// A record that a shard cannot replace is tried a few times, rather than forever.
func TestRecordThatCannotBeReplaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var s *metered
		a := startSingle(t, fmt.Sprintf(perMinute, 10, "1h"), func(o *limit.Options, _ *mitigation.Options) {
			s = &metered{Shard: o.Shards[0], unversioned: true}
			o.Shards = []async.Shard{s}
		})
		defer a.close()
		for range 12 {
			a.decide(1)
			time.Sleep(5 * time.Millisecond)
		}
		if _, err := a.Lift(a.key(1), time.Now()); err != nil {
			t.Fatal(err)
		}
		before := s.exchanges.Load()
		time.Sleep(time.Second)
		if n := s.exchanges.Load() - before; n > 10 {
			t.Errorf("%d exchanges to store a lift, want at most 10", n)
		}
		if v := a.decide(1).Verdict; v != limit.Passed {
			t.Errorf("after the lift, the client is %v", v)
		}
	})
}

// If more keys exceed their limit than the table has room for, their records do not evict each other for as long as the
// counts last.
func TestMoreMitigationsThanRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var s *metered
		a := startSingle(t, fmt.Sprintf(perMinute, 10, "1h"), func(o *limit.Options, mo *mitigation.Options) {
			mo.Size = 64
			s = &metered{Shard: o.Shards[0]}
			o.Shards = []async.Shard{s}
		})
		defer a.close()
		for _, pause := range []time.Duration{0, 5 * time.Millisecond, 0} { // with 5 ms, each record is stored before the next one evicts it
			for client := range uint32(300) {
				for range 11 {
					a.decide(client)
				}
				time.Sleep(pause)
			}
			time.Sleep(time.Second)
			before := s.exchanges.Load()
			time.Sleep(time.Second)
			if n := s.exchanges.Load() - before; n > 10 {
				t.Errorf("%d exchanges in a second without requests, want at most 10", n)
			}
		}
	})
}
