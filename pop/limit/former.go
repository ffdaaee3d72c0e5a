package limit

import (
	"time"

	"github.com/edgelimit/edge/counter"
)

// A former is a shard that owned a key before and still has counts of it that matter.
type former struct {
	lane    *lane
	until   time.Time // when this node ceased to count there
	settled time.Time // by then every node has, so that its counters are final
	next    time.Time // when it is to be read; zero: at once
	tried   bool
	settles bool // it was tried after it settled
	done    bool // it has been read after it settled
}

// formerPause is how long a former owner that did not answer is left alone by a key. Then
// it is asked with the key's next count.
const formerPause = time.Second

func (f *former) addr() string { return f.lane.shard.Addr() }

// place makes the owner of t's key what p says, and finds out which shards owned it
// before. They settle so long after they ceased to own it. It returns when they are to be
// read once more. held says that there is a record of the key: it follows to the new owner.
func (t *track) place(p *placement, owner *lane, now time.Time, settle time.Duration, held bool) (again []time.Time) {
	addr := owner.shard.Addr()
	moved := t.owner != addr
	if moved {
		for i := range t.windows {
			w := &t.windows[i]
			w.prev.move(t.owner, addr)
			w.cur.move(t.owner, addr)
			w.fresh, w.due = true, w.outdated()
		}
		t.owner = addr
	}
	known := t.formers
	t.formers, t.change = nil, p.change
	for _, past := range p.past {
		ln, err := past.ring.Owner(t.key)
		if err != nil || ln.shard.Addr() == addr || t.formerOf(ln.shard.Addr()) != nil {
			continue
		}
		f := former{lane: ln, until: past.until, settled: past.until.Add(settle)}
		if !t.concerns(&f, now) {
			continue
		}
		for i := range known {
			if known[i].until.Equal(f.until) && known[i].addr() == f.addr() {
				f = known[i]
			}
		}
		if now.Before(f.settled) {
			again = append(again, f.settled)
		}
		t.formers = append(t.formers, f)
	}
	t.store = t.store || moved && held && len(t.formers) > 0
	return again
}

// formerOf returns the former owner with an address, or nil.
func (t *track) formerOf(addr string) *former {
	for i := range t.formers {
		if t.formers[i].addr() == addr {
			return &t.formers[i]
		}
	}
	return nil
}

// concerns reports whether f may hold something that matters at now: counts of a current
// or previous window, or, as long as nobody has looked, a record.
func (t *track) concerns(f *former, now time.Time) bool {
	for i := range t.windows {
		period := t.windows[i].limit.Period
		number, _ := counter.Window(now, period)
		if last, _ := counter.Window(f.settled, period); last >= number-1 {
			return true
		}
	}
	return !f.tried && f.settled.Add(t.rule.MitigationTimeout).After(now)
}

// dueFormers appends to dst the former owners that are to be read at now, and reports
// whether one of them has just settled: then other nodes count here what they did there.
func (t *track) dueFormers(dst []former, now time.Time) (_ []former, settled bool) {
	for i := range t.formers {
		if f := &t.formers[i]; !f.done && !now.Before(f.next) && t.concerns(f, now) {
			dst = append(dst, *f)
			settled = settled || !f.settles && !now.Before(f.settled)
		}
	}
	return dst, settled
}

// formerReads returns the counters that are to be read of f: those of each limit's
// windows in which it may have been counted in.
func (t *track) formerReads(f *former) (reads []slot) {
	for i := range t.windows {
		w := &t.windows[i]
		last, _ := counter.Window(f.settled, w.limit.Period)
		for number := w.number - 1; number <= min(w.number, last); number++ {
			reads = append(reads, slot{w.limit, number})
		}
	}
	return reads
}

// readFormer takes in a counter of f, and reports whether its number fell.
func (t *track) readFormer(f *former, read slot, number uint64) (fell bool) {
	w, tally := t.find(read)
	if tally == nil || f.addr() == t.owner {
		return false
	}
	more, fell := tally.readFormer(read.limit.Layout, f.addr(), number)
	w.others = w.others || more
	return fell
}

// triedFormer takes in that f was asked at now, and whether it answered.
func (t *track) triedFormer(f *former, now time.Time, answered bool) {
	mine := t.formerOf(f.addr())
	if mine == nil || !mine.until.Equal(f.until) {
		return
	}
	mine.tried, mine.settles = true, !now.Before(f.settled)
	switch {
	case answered && !now.Before(f.settled):
		mine.done = true
	case answered:
		mine.next = f.settled
	default:
		if mine.next = now.Add(formerPause); now.Before(f.settled) && f.settled.Before(mine.next) {
			mine.next = f.settled
		}
	}
}
