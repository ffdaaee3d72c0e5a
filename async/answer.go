package async

import (
	"errors"
	"time"

	"github.com/edgelimit/edge/counter"
)

// answered handles the answers to a batch, or its failure.
func (c *Loop) answered(b *batch) {
	now := c.o.Now()
	b.lane.flying--
	if errors.Is(b.err, counter.ErrNotSent) {
		b.lane.retry = now.Add(retryPause)
		b.lane.ended = c.ending
	}
	for _, t := range b.tracks {
		c.catchUp(t) // first, to drop counts from before a lift
	}
	for i := range b.Increments {
		c.handleIncrement(&b.increments[i], &b.Increments[i], now)
	}
	for i := range b.Stores {
		b.stores[i].handleStored(b.Stores[i].Outcome)
	}
	for i := range b.Reads {
		switch s, op := &b.reads[i], &b.Reads[i]; {
		case s.nth == ofRecord:
			c.handleRecord(s.track, op, now)
		default:
			c.handleRead(s, op, b.begun)
		}
	}
	for _, t := range b.tracks {
		if t.place == evicted {
			c.drop(t)
			continue
		}
		t.place = nowhere
		c.evaluateAnswer(t, now)
		if t.hasWork(now) {
			c.send(t)
		}
	}
	c.reuse(b)
}

// evaluateAnswer evaluates t if a shard has answered with a new count. Without one, an evaluation would only renew a
// record that the table has evicted, and evict others.
func (c *Loop) evaluateAnswer(t *track, now time.Time) {
	if !t.news || t.rule == nil { // without a rule, only its record matters
		return
	}
	t.news = false
	if r := c.rules.Load().Current(t.rule); r != nil { // else the rule was removed
		c.update(t, r, now)
		c.evaluate(t, nil, now)
	}
}

// handleIncrement handles the outcome of an increment.
func (c *Loop) handleIncrement(s *slot, op *counter.Increment, now time.Time) {
	w, tally := s.find()
	s.news = true
	switch made := op.Outcome == counter.Done || op.Outcome == counter.Unknown; {
	case tally == nil && !made:
		c.metrics.lose(dropShard, s.layout.Sum(op.Delta))
	case tally == nil:
	case op.Outcome == counter.Done:
		others, fell := tally.reply(s.layout, op.Value, op.Delta)
		w.others = w.others || others && s.index == w.Index
		s.knownAt.Store(uint32(s.since / 1000))
		c.countFallen(s, fell, now)
	case made:
		tally.unknown(s.layout, op.Delta)
	default:
		full, refused := tally.unmade(s.layout, op)
		c.metrics.lose(dropFull, full)
		c.metrics.lose(dropRefused, refused)
		s.track.since = s.since
		c.countFallen(s, op.Outcome == counter.Absent && !op.Create && tally.fall(), now)
	}
	if op.Outcome == counter.Done {
		c.metrics.lag.Observe(float64(now.UnixMicro()-s.since) / 1e6)
	}
}

// handleRead handles the value of the previous counter, which was read at begun or later. An invalid value, or a
// refusal, changes no count.
func (c *Loop) handleRead(s *slot, op *counter.Read, begun time.Time) {
	w, tally := s.find()
	if op.Outcome == counter.NotSent || tally == nil {
		return
	}
	value, ok := uint64(0), true
	if op.Outcome == counter.Done {
		value, ok = counter.ParseValue(op.Value)
	}
	if ok && op.Outcome != counter.Refused {
		_, fell := tally.reply(s.layout, value, 0)
		c.countFallen(s, fell, begun)
	}
	s.news = true
	if s.index == w.Index-1 {
		w.noteReadPrev(s.limit(s.nth), begun, 2*c.o.Interval+max(0, c.o.Ahead()))
	}
}

// countFallen increments the metric of fallen counters if that of s fell. It ignores a counter whose key had another
// owner in a window that still counts: the new owner may lack those counts.
func (c *Loop) countFallen(s *slot, fell bool, now time.Time) {
	if !fell {
		return
	}
	former := c.former.lane(s.key)
	period := time.Duration(s.limit(s.nth).Period) * time.Microsecond
	if former == nil || former == c.seen.lane(s.key) || !now.Before(c.moved.Add(2*period)) {
		c.metrics.fallen.Add(1)
	}
}
