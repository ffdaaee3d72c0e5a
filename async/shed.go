package async

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// Sheds reports whether a request of client must be refused at now: whether the estimate of key exceeds the client's
// own threshold, as far as this node knows. key must be mitigated by r, a rule that sheds. Refused requests count as
// well, so refusing does not lower the estimate. The request path may call Sheds; it does not allocate.
func (c *Loop) Sheds(r *rule.Rule, key counter.Key, client netip.Addr, now time.Time) bool {
	var room [4]view
	known := c.views(room[:0], key, c.o.Table.Generation(key))
	if len(known) == 0 {
		return false
	}
	share := ShareOf(c.o.Secret, key, client, now)
	nodes := int64(max(c.o.Nodes(), 1))
	for i := range known {
		v := &known[i]
		nth := periodOf(r, v.limit.Period)
		if nth < 0 {
			continue
		}
		t := now.UnixMicro() - v.knownAt.age(now, v.limit.Period/maxStale)*(nodes-1)/nodes
		index, elapsed := counter.WindowAt(max(t, v.Index*v.limit.Period), v.limit.Period)
		v.Roll(index)
		v.limit.Threshold = share.Of(r.Limits[nth].Threshold)
		if v.over(elapsed) {
			return true
		}
	}
	return false
}

// maxStale bounds a correction in Sheds to 1/maxStale of the period. Until a node hears the other nodes' new counts,
// its estimate falls as if they counted nothing. Sheds undoes their part of the fall, as if each node kept counting at
// the same rate.
const maxStale = 4

// A Share is a client's position in the order in which a key's clients are refused: the fraction of them that is
// refused before it, in units of 1/2^32.
type Share uint32

// epoch is how long a client keeps its share of a key, in seconds.
const epoch = 600

// ShareOf returns the share of a client of a key. Shares are the same on all nodes, are distributed uniformly,
// and change every ten minutes, at different times for different keys.
func ShareOf(secret counter.Secret, key counter.Key, client netip.Addr, now time.Time) Share {
	var b [41]byte
	copy(b[:], key[:])
	b[16] = 's'
	addr := client.As16()
	copy(b[17:], addr[:])
	begins := int64(binary.BigEndian.Uint16(key[:]) % epoch)
	binary.BigEndian.PutUint64(b[33:], uint64((now.Unix()+begins)/epoch))
	sum := secret.Tag(b[:])
	return Share(binary.BigEndian.Uint32(sum[:]))
}

// Of returns the estimate above which a client with the share s is refused. With an estimate E and a
// threshold T, the fraction (E−T)/E of the clients is refused, so the result is T/(1−s).
func (s Share) Of(threshold uint64) uint64 {
	hi, lo := bits.Mul64(threshold, 1<<32)
	rest := 1<<32 - uint64(s)
	if hi >= rest {
		return math.MaxUint64
	}
	most, _ := bits.Div64(hi, lo, rest)
	return most
}

// A ClientSet has a bit for the hash of each of its clients. Clients may share a bit, so it has at most as many
// bits set as clients.
type ClientSet [2]uint64

// ClientSetOf returns the set of one client.
func ClientSetOf(secret counter.Secret, client netip.Addr) (s ClientSet) {
	addr := client.As16()
	hash := secret.Tag(addr[:])[0]
	s[hash>>6&1] = 1 << (hash & 63)
	return s
}

// Add adds the clients of o.
func (s *ClientSet) Add(o ClientSet) { s[0], s[1] = s[0]|o[0], s[1]|o[1] }

// Len returns a lower bound on the number of clients.
func (s *ClientSet) Len() int { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// seen returns the clients of t in the first limit's current window and in the previous one.
func (t *track) seen() (clients [2]ClientSet) {
	if r := t.rarely.Load(); r != nil {
		clients = r.clients
	}
	return clients
}

// clients returns a lower bound on the number of clients of t that this node has seen in both windows together.
func (t *track) clients() int {
	seen := t.seen()
	seen[0].Add(seen[1])
	return seen[0].Len()
}
