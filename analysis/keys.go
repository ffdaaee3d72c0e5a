package analysis

import (
	"math"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A keyTable has the states of keys for one or more rules. Its life is at least twice their longest period, and at
// least their longest timeout.
type keyTable = agingTable[keyStates]

// keyStates are the states of a key under a rule, one for each way of deciding. While the key has too few requests to
// exceed a limit, they hold only the times of these requests: most keys of most logs never have more. keyStates has
// the size of a cache line.
type keyStates struct {
	base  int64           // time of the first of the requests
	all   *[ways]wayState // replaces the times; nil while they are few
	after [11]uint32      // microseconds since base
	n     uint8           // number of times in after
}

// A wayState is the state of a key in one way of deciding.
type wayState struct {
	limit.KeyState
	clients *counter.Windows[int64, async.ClientSet] // of the first limit; nil without MinClients
}

// add adds a request, and reports whether there is room for it.
func (k *keyStates) add(now int64, m *member) bool {
	if k.n >= m.few || now-k.base > math.MaxUint32 {
		k.forget(now - m.counts)
	}
	if k.n == 0 {
		k.base = now
	}
	if k.n >= m.few || now-k.base > math.MaxUint32 {
		return false
	}
	k.after[k.n] = uint32(now - k.base)
	k.n++
	return true
}

// forget removes the requests at or before a time.
func (k *keyStates) forget(until int64) {
	old := uint8(0)
	for old < k.n && k.base+int64(k.after[old]) <= until {
		old++
	}
	if old == 0 || old == k.n {
		k.n -= old
		return
	}
	begin := k.after[old]
	k.n -= old
	for i := range k.n {
		k.after[i] = k.after[i+old] - begin
	}
	k.base += int64(begin)
}

// expand replaces the times with a state for each way starting at from, and counts the requests in it. They exceed no
// limit.
func (k *keyStates) expand(m *member, from int) {
	k.all = new([ways]wayState)
	for way := from; way < m.ways; way++ {
		s := limit.NewKeyState(m.Rule, way == byExactCounts)
		for i := range k.n {
			s.Add(k.base+int64(k.after[i]), m.CostOf(1))
		}
		k.all[way].KeyState = s
	}
}

// hasFewClients reports whether a key has too few clients to be mitigated, and records the client of q.
func (k *wayState) hasFewClients(r *rule.Rule, q *preparedRequest) bool {
	if r.MinClients < 2 {
		return false
	}
	if k.clients == nil {
		k.clients = new(counter.Windows[int64, async.ClientSet])
	}
	index, _ := counter.WindowAt(q.now, r.Limits[0].Period.Microseconds())
	k.clients.Roll(index)
	k.clients.Cur.Add(async.ClientSetOf(secret, q.network))
	both := k.clients.Cur
	both.Add(k.clients.Prev)
	return both.Len() < r.MinClients
}

// An agingTable has the same number of values for each key. It forgets a key that has been unused for a time between
// life and 2·life, so its size depends on the number of active keys, not on the length of the log.
type agingTable[V any] struct {
	life        int64 // in microseconds
	each        int   // number of values per key
	since, used int64 // when young began, and when it was last used
	young, old  *client.Values[V]
}

// age forgets unused keys. It must be called before requests in [from, to], in chronological order.
// Results of get are valid until the next call.
func (a *agingTable[V]) age(from, to int64) {
	if a.young == nil {
		a.young = client.NewValues[V](a.each)
	}
	switch {
	case a.young.Len() == 0:
		a.since = from
	case from-a.since > a.life:
		a.old = a.young
		if from-a.used > a.life {
			a.old = nil
		}
		a.young, a.since = client.NewValues[V](a.each), from
	}
	a.used = to
}

// get returns the values of a key, which are initially zero.
func (a *agingTable[V]) get(key *accesslog.Client, hash uint64) []V {
	known := a.young.Len()
	values := a.young.Of(hash, key)
	if a.old != nil && a.young.Len() > known {
		if before, ok := a.old.Find(hash, key); ok {
			copy(values, a.old.Numbered(before))
		}
	}
	return values
}
