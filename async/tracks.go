package async

import (
	"encoding/binary"
	"sync"

	"github.com/edgelimit/edge/counter"
)

// parts is the number of parts of the tracks. Each has a lock.
const parts = 64

// A part is a hash table with the tracks of some keys. Keys are hashes already. Only the loop changes it.
type part struct {
	mu      sync.Mutex // guards buckets and shared fields: held by the loop to change them, by others to read them
	buckets []*track   // chained by track.chain; the length is a power of two
	n       int
	hand    int // where eviction continues
}

func (c *Loop) part(key counter.Key) *part { return &c.tracks[key[0]%parts] }

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
