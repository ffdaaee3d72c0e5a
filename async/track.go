package async

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A track holds a node's counts of one key. The loop owns it, but changes the windows and the fields marked shared only
// under the lock of the track's part, so that requests can read them under that lock.
//
// There may be a million tracks, so a test pins their size. State that few keys need is in rarely.
type track struct {
	key        counter.Key
	chain      *track // shared: the next one in the same bucket of the part
	next, prev *track // in a list of its lane

	rule *rule.Rule // shared: the rule that counts the key; nil if only its record matters

	rarely atomic.Pointer[rarely] // nil for most tracks

	// The client and the text of the sample: method, host and path. cuts are where host and path begin.
	client [16]byte
	text   string
	cuts   [2]uint8

	store bool // the record must be stored in the shard
	near  bool // a few more requests will exceed a threshold
	used  bool // since the hand of eviction last passed it
	news  bool // a shard has answered with a count since the last evaluation
	place place

	readRecord atomic.Bool // another node may have mitigated the key; set by requests, too
	knownAt    stamp       // shared: when the oldest request arrived of the increment that was answered last
	since      int64       // when the oldest unsent request arrived, in microseconds; 0 if none

	// generation is how often the key's mitigation was lifted. Each generation has items of
	// its own (see counter.Secret.After), so that counts from before a lift never come back. Shared.
	generation uint32

	burst  uint16 // number of requests in the last flush
	resets uint16 // number of resets of the counts: answers to operations from before a reset are ignored, see slot

	first [1]limitWindows // of the only limit; unused if the rule has several
}

// rarely is the part of a track that few keys need.
type rarely struct {
	windows []limitWindows // of several limits; nil if there is one
	version uint64         // of the record in the shard; 0 if it has none
	tries   uint8          // how often the shard had another record when this one was stored
	clients [2]ClientSet   // in the first limit's current and previous window, if the rule has MinClients
}

// A limitWindows is the current window of one limit, and the previous one.
type limitWindows struct {
	counter.Windows[uint32, tally]
	fresh  bool   // the previous counter has not been read yet
	others bool   // other nodes have counted since the last evaluation of an answer
	seen   uint32 // elapsed at the last evaluation of an answer, in milliseconds; unseen if there was none
	again  uint32 // when to read the previous counter again, in milliseconds since the window began; 0 if it is final
}

const unseen = math.MaxUint32

// newWindows returns the windows at index and before, whose counts are unknown.
func newWindows(index uint32) (w limitWindows) {
	w.Index, w.fresh, w.seen = index, true, unseen
	return w
}

// indexAt returns the index of the window of limit at now.
func indexAt(limit counter.Limit, now time.Time) uint32 {
	index, _ := counter.Window(now, limit.Period)
	return uint32(index)
}

// elapsed returns how much of the current window has passed at now, or 0 if the clock was set back.
func (w *limitWindows) elapsed(limit counter.Limit, now time.Time) int64 {
	index, elapsed := counter.Window(now, limit.Period)
	if uint32(index) < w.Index {
		return 0
	}
	return elapsed
}

// rare returns t.rarely, creating it if missing.
func (t *track) rare() *rarely {
	if t.rarely.Load() == nil {
		t.rarely.Store(new(rarely))
	}
	return t.rarely.Load()
}

// windows returns a window for each limit of the rule.
func (t *track) windows() []limitWindows {
	if r := t.rarely.Load(); r != nil && r.windows != nil {
		return r.windows
	}
	if t.rule == nil {
		return nil
	}
	return t.first[:]
}

// limit returns the ith limit of the rule.
func (t *track) limit(i int) counter.Limit { return t.rule.Limits[i].Counted() }

// keep replaces the sample with a copy of s, unless they are equal.
func (t *track) keep(s *mitigation.Sample) {
	before, last := t.sample(), cut(*s)
	if before.Method != last.Method || before.Host != last.Host || before.Path != last.Path {
		t.text, t.cuts = last.Method+last.Host+last.Path,
			[2]uint8{uint8(len(last.Method)), uint8(len(last.Method) + len(last.Host))}
	}
	t.client = s.Client.As16()
}

// sample returns the last request that was counted.
func (t *track) sample() mitigation.Sample {
	host, path := t.cuts[0], t.cuts[1]
	return mitigation.Sample{Client: t.lastClient(), Method: t.text[:host], Host: t.text[host:path], Path: t.text[path:]}
}

// lastClient returns the client of the last request that was counted.
func (t *track) lastClient() netip.Addr {
	if t.client == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(t.client).Unmap()
}

// update brings t up to date: with r, which must be in the current set, with lifts, and with the windows at now.
func (c *Loop) update(t *track, r *rule.Rule, now time.Time) {
	defer c.lock(t.key).mu.Unlock()
	c.setRule(t, r, now)
	c.catchUp(t, now)
	c.advance(t, now)
}

// setRule makes r, which must be in the current set, the rule that counts t. Limits that keep their period and their
// sub-windows keep their counts. The part's mu must be held.
func (c *Loop) setRule(t *track, r *rule.Rule, now time.Time) {
	before := t.rule
	if before == r {
		return
	}
	if before != nil && slices.EqualFunc(before.Limits, r.Limits, sameCounters) {
		t.rule = r
		return
	}
	next := func(i int) limitWindows {
		if j := same(before, &r.Limits[i]); j >= 0 {
			return t.windows()[j]
		}
		return newWindows(indexAt(r.Limits[i].Counted(), now))
	}
	if before != nil {
		t.resets++
		for j := range before.Limits {
			if same(r, &before.Limits[j]) < 0 {
				c.lose(t, dropChanged, j)
			}
		}
	}
	if len(r.Limits) > 1 {
		several := make([]limitWindows, len(r.Limits))
		for i := range several {
			several[i] = next(i)
		}
		t.rare().windows = several
	} else {
		t.first[0] = next(0)
		if rare := t.rarely.Load(); rare != nil {
			rare.windows = nil
		}
	}
	t.rule = r
}

// sameCounters reports whether two limits of a rule have the same counters.
func sameCounters(a, b rule.Limit) bool { return a.Period == b.Period && a.SubWindows == b.SubWindows }

// same returns the index of the limit of r with the same counters as l, or -1. r may be nil.
func same(r *rule.Rule, l *rule.Limit) int {
	if r == nil {
		return -1
	}
	return slices.IndexFunc(r.Limits, func(other rule.Limit) bool { return sameCounters(other, *l) })
}

// periodOf returns the index of the limit of r with this period, in microseconds, or -1.
func periodOf(r *rule.Rule, period int64) int {
	return slices.IndexFunc(r.Limits, func(l rule.Limit) bool { return l.Period.Microseconds() == period })
}

// lose drops the waiting requests of the ith window.
func (c *Loop) lose(t *track, cause, i int) {
	w, l := &t.windows()[i], t.limit(i).Layout
	c.metrics.lose(cause, l.Sum(w.Prev.waiting)+l.Sum(w.Cur.waiting))
	w.Prev.waiting, w.Cur.waiting = 0, 0
}

// loseAll drops all waiting requests.
func (c *Loop) loseAll(t *track, cause int) {
	for i := range t.windows() {
		c.lose(t, cause, i)
	}
	t.since = 0
}

// catchUp resets the counts of t, and drops its waiting requests, if the generation of its key has changed: it rises
// when the mitigation is lifted, and falls when the table forgets a lift. The part's mu must be held.
func (c *Loop) catchUp(t *track, now time.Time) {
	generation := c.o.Table.Generation(t.key)
	if generation == t.generation {
		return
	}
	c.loseAll(t, dropLifted)
	windows := t.windows()
	for i := range windows {
		windows[i] = newWindows(indexAt(t.limit(i), now))
	}
	t.generation, t.near = generation, false
	t.resets++
}

// add counts the requests of an item.
func (c *Loop) add(t *track, item *item) {
	defer c.lock(t.key).mu.Unlock()
	item.added = true
	windows := t.windows()
	for i := range windows {
		w, limit := &windows[i], t.limit(i)
		at, elapsed := counter.Window(time.UnixMilli(item.tick), limit.Period)
		index := uint32(at)
		if index > w.Index {
			c.roll(t, i, index)
		}
		if tally := w.At(index); tally != nil {
			fits := min(item.n, limit.Layout.Stop())
			c.metrics.lose(dropFull, item.n-fits+tally.add(limit.Layout, limit.Delta(fits, elapsed)))
		} else {
			c.metrics.lose(dropShard, item.n)
		}
	}
}

// roll makes the window at index the current one of the ith limit. It keeps counts only if that is the next window.
func (c *Loop) roll(t *track, i int, index uint32) {
	w, next, clients := &t.windows()[i], newWindows(index), ClientSet{}
	if index == w.Index+1 {
		c.metrics.lose(dropShard, t.limit(i).Layout.Sum(w.Prev.waiting))
		clients = t.seen()[0]
		next.Prev, next.Cur.gap = w.Cur, w.Cur.gap
	} else {
		c.lose(t, dropShard, i)
		if index < w.Index { // answers for this window may be on their way
			t.resets++
		}
	}
	*w = next
	if r := t.rarely.Load(); i == 0 && r != nil {
		r.clients = [2]ClientSet{1: clients}
	}
}

// advance makes the window at now the current one of each limit. If the clock was set back by a window or more, the
// counts are reset: they were made by a wrong clock. The part's mu must be held.
func (c *Loop) advance(t *track, now time.Time) {
	windows := t.windows()
	for i := range windows {
		if at, current := indexAt(t.limit(i), now), windows[i].Index; at > current || at+1 < current {
			c.roll(t, i, at)
		}
	}
}

// unsent reports whether requests are waiting.
func (t *track) unsent() bool {
	windows := t.windows()
	for i := range windows {
		if w := &windows[i]; w.Prev.waiting|w.Cur.waiting != 0 {
			return true
		}
	}
	return false
}

// due reports whether the previous counter of the ith window must be read at now.
func (t *track) due(i int, now time.Time) bool {
	w := &t.windows()[i]
	if w.again != 0 {
		return w.elapsed(t.limit(i), now) >= int64(w.again)*1000
	}
	return w.fresh && w.Cur.known|w.Cur.waiting > 0
}

// hasWork reports whether t has something to send or to read at now.
func (t *track) hasWork(now time.Time) bool {
	if t.store || t.readRecord.Load() || t.unsent() {
		return true
	}
	for i := range t.windows() {
		if t.due(i, now) {
			return true
		}
	}
	return false
}

// A stamp is a time in milliseconds since the Unix epoch, modulo 2^32, or 0 for never.
type stamp uint32

func stampOf(t time.Time) stamp { return stamp(t.UnixMilli()) }

// age returns the time from s to now, in microseconds: at most maxAge, and maxAge if s is 0.
func (s stamp) age(now time.Time, maxAge int64) int64 {
	if s == 0 {
		return maxAge
	}
	return min(max(0, int64(int32(stampOf(now)-s)))*1000, maxAge)
}

// noteReadPrev records that the previous counter of w was read at now. Other nodes may add to it for up to late after
// the end of its window, so the key's next count after that reads it once more.
func (w *limitWindows) noteReadPrev(limit counter.Limit, now time.Time, late time.Duration) {
	w.fresh, w.again = false, 0
	began := time.UnixMicro(int64(w.Index) * limit.Period)
	if now.Before(began.Add(late)) {
		w.again = uint32((late + time.Millisecond - 1) / time.Millisecond)
	}
}

// parts is the number of parts of the tracks. Each has a lock.
const parts = 64

// A part is a hash table with the tracks of some keys. Keys are hashes already. Only the loop changes it.
type part struct {
	mu      sync.Mutex // guards buckets, windows and shared fields: the loop holds it to change them, others to read them
	buckets []*track   // chained by track.chain; the length is a power of two
	n       int
	hand    int // where eviction continues
}

func (c *Loop) part(key counter.Key) *part { return &c.tracks[key[0]%parts] }

// lock locks the part of key and returns it.
func (c *Loop) lock(key counter.Key) *part {
	p := c.part(key)
	p.mu.Lock()
	return p
}

// bucket returns the head of a key's chain. p must have buckets.
func (p *part) bucket(key counter.Key) **track {
	return &p.buckets[binary.LittleEndian.Uint32(key[4:])&uint32(len(p.buckets)-1)]
}

// find returns the track of a key, or nil if the key is not tracked.
func (p *part) find(key counter.Key) *track {
	if p.n == 0 {
		return nil
	}
	t := *p.bucket(key)
	for t != nil && t.key != key {
		t = t.chain
	}
	return t
}

// add adds a new track.
func (p *part) add(t *track) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == len(p.buckets) {
		old := p.buckets
		p.buckets = make([]*track, max(8, 2*len(old)))
		for _, t := range old {
			for t != nil {
				next := t.chain
				p.link(t)
				t = next
			}
		}
	}
	p.link(t)
	p.n++
}

func (p *part) link(t *track) {
	bucket := p.bucket(t.key)
	t.chain, *bucket = *bucket, t
}

// all yields the tracks. Only the loop may call it, and must not change p meanwhile.
func (p *part) all(yield func(*track) bool) {
	for _, t := range p.buckets {
		for ; t != nil; t = t.chain {
			if !yield(t) {
				return
			}
		}
	}
}

// maxSpared is the maximum number of keys that an eviction spares for each reason: they are near their threshold, or
// they wait for a shard.
const maxSpared = 8

// evict removes and returns a track that was not used since the hand last passed it, preferably one that is far from
// its threshold and does not wait for a shard. p must not be empty.
func (p *part) evict() *track {
	for near, waiting := 0, 0; ; p.hand++ {
		for at := &p.buckets[p.hand&(len(p.buckets)-1)]; *at != nil; {
			t := *at
			switch {
			case t.used:
				t.used = false
			case t.near && near < maxSpared:
				near++
			case t.place != nowhere && waiting < maxSpared:
				waiting++
			default:
				p.mu.Lock()
				*at = t.chain
				p.n--
				p.mu.Unlock()
				return t
			}
			at = &t.chain
		}
	}
}

// track returns the track of key, creating it if missing. A new track may evict another.
func (c *Loop) track(key counter.Key) *track {
	p := c.part(key)
	t := p.find(key)
	if t == nil {
		for p.n >= (c.o.TrackedKeys+parts-1)/parts {
			c.forget(p.evict())
		}
		t = &track{key: key}
		p.add(t)
	}
	t.used = true
	return t
}

// forget drops the work of an evicted track, and schedules a comparison of a record that was to be stored.
func (c *Loop) forget(t *track) {
	c.metrics.evicted.Inc()
	if t.store {
		c.uncompared, c.comparing = append(c.uncompared, t.key), c.o.Now().Add(evictedPause)
	}
	c.lane(t.key).leave(t)
	if t.place != inFlight { // otherwise, answered drops the requests
		c.drop(t)
	}
	t.place = evicted
}

// drop drops the unsent requests of an evicted track.
func (c *Loop) drop(t *track) {
	cause := dropMemory
	if c.Unavailable(t.key) {
		cause = dropShard
	}
	c.loseAll(t, cause)
}
