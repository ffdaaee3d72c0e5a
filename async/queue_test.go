package async

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/rule"
)

// A numbered is a queue whose arrivals are numbers.
type numbered struct {
	*queue
	hash func(int) uint64
}

func (o numberedOptions) new() numbered {
	if o.hash == nil {
		o.hash = func(k int) uint64 { return uint64(k) * 0x9e3779b97f4a7c15 }
	}
	return numbered{newQueue(cmp.Or(o.capacity, 16384), cmp.Or(o.interval, 2*time.Millisecond), o.registerer), o.hash}
}

type numberedOptions struct {
	capacity   int
	interval   time.Duration
	hash       func(int) uint64
	registerer prometheus.Registerer
}

func (q numbered) offer(k, n int, urgent bool) (ok bool) {
	more := item{tick: int64(k), n: uint64(n)}
	binary.LittleEndian.PutUint64(more.key[:], q.hash(k))
	return q.queue.offer(&more, func(*stripe) bool { return urgent })
}

// flushes records the items that a queue flushes, and when.
type flushes struct {
	mu    sync.Mutex
	start time.Time
	log   []string
	sum   map[int]int
}

func (f *flushes) flush(items []item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, item := range items {
		f.log = append(f.log, fmt.Sprintf("%v: %d×%d", time.Since(f.start), item.tick, item.n))
		if f.sum == nil {
			f.sum = map[int]int{}
		}
		f.sum[int(item.tick)] += int(item.n)
	}
}

// drain polls q when it is due, until ctx is done, then flushes the rest.
func drain(ctx context.Context, q numbered, flush func([]item)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			q.flush(flush)
			return
		case <-q.wake:
		case <-timer.C:
		}
		now := time.Now()
		next := q.poll(now, flush)
		if timer.Stop(); !next.IsZero() {
			timer.Reset(next.Sub(now))
		}
	}
}

// run runs test with a queue in fake time, and returns the flushes.
func run(t *testing.T, o numberedOptions, test func(q numbered)) []string {
	t.Helper()
	f := new(flushes)
	bubble.Test(t, func(t *testing.T) {
		f.start = time.Now()
		q := o.new()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			drain(ctx, q, f.flush)
			close(done)
		}()
		synctest.Wait()
		test(q)
		cancel()
		<-done
	})
	return f.log
}

func TestOffersJoinUntilTheInterval(t *testing.T) {
	got := run(t, numberedOptions{interval: 4 * time.Millisecond}, func(q numbered) {
		q.offer(7, 1, false)
		time.Sleep(3 * time.Millisecond)
		q.offer(7, 2, false) // merged with the first
		time.Sleep(3 * time.Millisecond)
		q.offer(7, 4, false) // a new item
		time.Sleep(time.Hour)
	})
	want := []string{"4ms: 7×3", "10ms: 7×4"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("flushes (-want +got):\n%s", diff)
	}
}

// An offer sees all requests of its key that wait or are being flushed, whatever their tick, until they are shown.
func TestOffersSeeWhatIsNotShown(t *testing.T) {
	q := newQueue(16384, time.Millisecond, nil)
	offer := func(tick int64, want ...arrivals) {
		t.Helper()
		more := item{key: counter.Key{1}, tick: tick, n: 1}
		var got []arrivals
		q.offer(&more, func(s *stripe) bool {
			if s.flushing {
				got = s.spare.unseen(got, &more)
			}
			got = s.queued.unseen(got, &more)
			return false
		})
		if !slices.Equal(got, want) {
			t.Errorf("an offer of tick %d sees %v, want %v", tick, got, want)
		}
	}
	others := item{key: counter.Key{1}, generation: 1, n: 1}
	q.offer(&others, func(*stripe) bool { return false })
	offer(7, arrivals{7, 1})
	offer(7, arrivals{7, 2})
	offer(8, arrivals{7, 2}, arrivals{8, 1})
	flushed := 0
	q.flush(func(items []item) {
		flushed += len(items)
		offer(8, arrivals{7, 2}, arrivals{8, 1}, arrivals{8, 1})
		items[1].added = true
		offer(8, arrivals{8, 1}, arrivals{8, 2})
	})
	offer(9, arrivals{8, 2}, arrivals{9, 1})
	q.flush(func(items []item) { flushed += len(items) })
	offer(9, arrivals{9, 1})
	if flushed != 5 {
		t.Errorf("%d items were flushed, want 5", flushed)
	}
}

func TestUrgentOffersDoNotWait(t *testing.T) {
	got := run(t, numberedOptions{interval: 8 * time.Millisecond}, func(q numbered) {
		time.Sleep(time.Second)
		q.offer(1, 1, true)
		synctest.Wait() // flushed immediately
		q.offer(1, 1, true)
		synctest.Wait() // the next flush is later
		time.Sleep(500 * time.Microsecond)
		q.offer(1, 1, true) // merged
		time.Sleep(time.Hour)
	})
	want := []string{"1s: 1×1", "1.001s: 1×2"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("flushes (-want +got):\n%s", diff)
	}
}

func TestUrgencyDoesNotHurryOthers(t *testing.T) {
	got := run(t, numberedOptions{
		interval: 8 * time.Millisecond,
		hash:     func(k int) uint64 { return uint64(k) }, // keys 1 and 2 in different stripes
	}, func(q numbered) {
		q.offer(1, 1, false)
		q.offer(2, 1, true)
		time.Sleep(time.Hour)
	})
	want := []string{"0s: 2×1", "8ms: 1×1"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("flushes (-want +got):\n%s", diff)
	}
}

func TestEndFlushesTheRest(t *testing.T) {
	got := run(t, numberedOptions{interval: time.Hour}, func(q numbered) {
		q.offer(1, 1, false)
		q.offer(1, 1, false)
	})
	if diff := gocmp.Diff([]string{"0s: 1×2"}, got); diff != "" {
		t.Errorf("flushes (-want +got):\n%s", diff)
	}
}

// An offer to a stripe that is being flushed wakes the queue again.
func TestOffersDuringFlush(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &flushes{start: time.Now()}
		q := numberedOptions{interval: 4 * time.Millisecond}.new()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			drain(ctx, q, func(items []item) {
				if f.flush(items); len(f.log) < 3 {
					q.offer(7, 1, false)
				}
			})
			close(done)
		}()
		q.offer(7, 1, false)
		time.Sleep(time.Hour)
		cancel()
		<-done
		if diff := gocmp.Diff([]string{"4ms: 7×1", "8ms: 7×1", "12ms: 7×1"}, f.log); diff != "" {
			t.Errorf("flushes (-want +got):\n%s", diff)
		}
	})
}

// The queue retains no flushed items, even if it is idle for a long time.
func TestFlushedValuesAreReleased(t *testing.T) {
	q := newQueue(100*stripes, time.Hour, nil)
	var rules []weak.Pointer[rule.Rule]
	for k := range 100 {
		r := new(rule.Rule)
		rules = append(rules, weak.Make(r))
		q.offer(&item{tick: int64(k), rule: r, n: 1}, func(*stripe) bool { return false })
	}
	flushed := 0
	q.flush(func(items []item) { flushed += len(items) })
	runtime.GC()
	kept := 0
	for _, r := range rules {
		if r.Value() != nil {
			kept++
		}
	}
	if flushed != 100 || kept > 0 {
		t.Errorf("%d values were flushed, %d are still in memory", flushed, kept)
	}
	runtime.KeepAlive(q)
}

// A full queue rejects new keys, and still merges offers of its keys.
func TestFull(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	// Room for 3 keys in each of 16 stripes; all keys have the same hash and share one.
	q := numberedOptions{capacity: 3 * 16, hash: func(int) uint64 { return 0 }, registerer: reg}.new()
	for k := range 3 {
		if ok := q.offer(k, 1, false); !ok {
			t.Errorf("offer(%d) = false with %d of 3 keys queued", k, k)
		}
	}
	for range 2 {
		if ok := q.offer(99, 1, false); ok {
			t.Error("offer of a fourth key = true, want false")
		}
	}
	if ok := q.offer(2, 1, false); !ok {
		t.Error("offer(2) = false, but it is queued already")
	}
	want := `
# HELP edge_queue_depth Keys waiting to be counted.
# TYPE edge_queue_depth gauge
edge_queue_depth 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	f := new(flushes)
	q.flush(f.flush)
	if diff := gocmp.Diff(map[int]int{0: 1, 1: 1, 2: 2}, f.sum); diff != "" {
		t.Errorf("flushed (-want +got):\n%s", diff)
	}
}

// Every offer is flushed exactly once, whichever goroutine makes it.
func TestNothingIsLostOrDoubled(t *testing.T) {
	q := numberedOptions{interval: 50 * time.Microsecond}.new()
	f := new(flushes)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		drain(ctx, q, f.flush)
		close(done)
	}()
	var wg sync.WaitGroup
	var offered [100]atomic.Int64
	for g := range 4 {
		wg.Go(func() {
			for i := range 20000 {
				k := (i*7 + g) % 100
				if ok := q.offer(k, 1, i%50 == 0); ok {
					offered[k].Add(1)
				}
			}
		})
	}
	wg.Wait()
	cancel()
	<-done
	for k := range offered {
		if got, want := f.sum[k], int(offered[k].Load()); got != want {
			t.Errorf("key %d: flushed %d, offered %d", k, got, want)
		}
	}
}

func TestOfferAllocatesNothing(t *testing.T) {
	q := numberedOptions{}.new()
	k := 0
	if n := testing.AllocsPerRun(5000, func() {
		q.offer(k%2000, 1, k%10 == 0)
		k++
	}); n != 0 {
		t.Errorf("offer allocates %v times, want 0", n)
	}
}

func BenchmarkOffer(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			q := numberedOptions{}.new()
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { drain(ctx, q, func([]item) {}) })
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					q.offer(i%keys, 1, false)
				}
			})
			cancel()
			wg.Wait()
		})
	}
}

// Flush flushes everything immediately, however often it is called.
func TestFlush(t *testing.T) {
	q := numberedOptions{interval: time.Hour}.new()
	f := &flushes{start: time.Now()}
	q.offer(1, 1, false)
	q.offer(2, 1, true)
	q.offer(1, 1, false)
	q.flush(f.flush)
	q.flush(f.flush)
	if diff := gocmp.Diff(map[int]int{1: 2, 2: 1}, f.sum); diff != "" || q.len() != 0 {
		t.Errorf("flushed (-want +got):\n%s%d are left", diff, q.len())
	}
	q.offer(1, 5, false)
	q.flush(f.flush)
	if f.sum[1] != 7 {
		t.Errorf("flushed %d of key 1 after another offer, want 7", f.sum[1])
	}
}

// Keys with the same hash, few or many, leave nothing behind after a flush.
func TestFlushedKeysLeaveNothingBehind(t *testing.T) {
	q := numberedOptions{hash: func(int) uint64 { return 7 }, capacity: 16 * 256}.new()
	for _, n := range []int{3, 200, 5, 1} {
		for range 2 { // the queue swaps two tables
			for k := range n {
				for range 2 {
					q.offer(k, 1, false)
				}
			}
			var f flushes
			q.flush(f.flush)
			if len(f.log) != n || f.sum[n-1] != 2 {
				t.Errorf("flushed %d keys, the last one %d times; want %d keys, 2 times", len(f.log), f.sum[n-1], n)
			}
		}
	}
}
