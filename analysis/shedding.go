package analysis

import (
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
)

// sheds reports whether m refuses the request under a mitigated key: see [async.Loop.Sheds].
func (m *member) sheds(way int, s *state, key *accesslog.Client, q *prepared) bool {
	share := async.ShareOf(secret, counter.Key(*key), q.network, time.UnixMicro(q.now))
	for i := range m.limits {
		s, l := &s.limits[m.from+i], m.limits[i]
		l.Threshold = share.Of(l.Threshold)
		if way == byExactCounts {
			if s.log.Over(l.Threshold, q.now, l.Period) {
				return true
			}
			continue
		}
		windows := s.Windows
		index, elapsed := counter.WindowAt(q.now, l.Period)
		if windows.Roll(index); l.Over(windows.Prev, windows.Cur, elapsed) {
			return true
		}
	}
	return false
}

// keyClients are the clients of a key in a window of the rule's first limit and in the previous one, as a node
// knows them.
type keyClients struct {
	counter.Windows[int64, async.ClientSet]
}

func (c *keyClients) add(m *member, q *prepared) {
	index, _ := counter.WindowAt(q.now, m.limits[0].Period)
	c.Roll(index)
	c.Cur.Add(async.ClientSetOf(secret, q.network))
}

// n returns a lower bound on the number of clients.
func (c *keyClients) n() int {
	both := c.Cur
	both.Add(c.Prev)
	return both.Len()
}
