package analysis

import (
	"math"

	"github.com/edgelimit/edge/counter"
)

// An event is a request of a worker's client.
type event struct {
	t      int64
	client uint32 // its number
}

// A worker counts the requests of its share of the clients.
type worker struct {
	groups []groupWork
	next   []event      // filled by Accuracy
	full   chan []event // to the worker
	empty  chan []event // and back
	done   chan struct{}
}

const (
	eventsAtOnce  = 8192
	fetchedAtOnce = 16
	chunkClients  = 64 // whose words are allocated together
)

// groupWork is what a worker knows of a group.
type groupWork struct {
	group
	sources []source
	chunks  [][]uint64 // words of chunkClients clients each
	placed  int        // clients that have words
	once    []uint64   // memory for words of a client's first request
	limits  []limitTally
	tallies []tally
	fetched int64 // of no meaning: see fetch
}

// A source is a client, as far as no estimator is concerned.
type source struct {
	log      SlidingLog
	requests uint64
	peak     uint64 // greatest exact number
	place    int    // of its words, from 1 on; 0 as long as it has none
}

// A limitTally is what is counted for a limit, whatever estimates.
type limitTally struct {
	over uint64 // requests exactly over
	near uint64 // whose exact number is between half the threshold and twice
}

// A tally is what is counted of one counting.
type tally struct {
	signed       int64  // sum of signed relative errors, in 2^−32
	partly       uint64 // requests whose estimate has a weighted part
	partlyErrors uint64 // sum of their relative errors, in 2^−32
	limits       []decisions
}

// decisions are those about one limit.
type decisions struct {
	over, wronglyAllowed, wronglyLimited uint64
	worst                                uint64 // greatest exact number that was wrongly allowed
}

// Flags of a client, two for each limit.
const (
	flagOver   = 1 << iota // was over by the estimate
	flagDiffer             // a decision differed
)

func newWorker(groups []group) *worker {
	w := &worker{
		next: make([]event, 0, eventsAtOnce),
		full: make(chan []event, 4), empty: make(chan []event, 6), done: make(chan struct{}),
	}
	for range cap(w.empty) - 1 {
		w.empty <- make([]event, 0, eventsAtOnce)
	}
	for _, g := range groups {
		work := groupWork{group: g, once: make([]uint64, g.words), limits: make([]limitTally, len(g.limits)), tallies: make([]tally, len(g.countings))}
		for i := range work.tallies {
			work.tallies[i].limits = make([]decisions, len(g.limits))
		}
		w.groups = append(w.groups, work)
	}
	return w
}

// pass gives the worker what is in next.
func (w *worker) pass() {
	w.full <- w.next
	w.next = <-w.empty
}

// finish waits until the worker has done everything.
func (w *worker) finish() {
	w.full <- w.next
	close(w.full)
	<-w.done
}

func (w *worker) run() {
	defer close(w.done)
	for events := range w.full {
		for i := range w.groups {
			g := &w.groups[i]
			for rest := events; len(rest) > 0; {
				some := rest[:min(len(rest), fetchedAtOnce)]
				rest = rest[len(some):]
				g.fetch(some)
				for _, e := range some {
					g.count(e)
				}
			}
		}
		w.empty <- events[:0]
	}
}

// fetch reads a little of what counting events will look at, for no other reason than that
// memory then brings it at the same time and not one after the other.
func (g *groupWork) fetch(events []event) {
	for _, e := range events {
		if int(e.client) < len(g.sources) {
			s := &g.sources[e.client]
			g.fetched += s.log.oldest()
			if state := g.state(s); len(state) > 0 {
				g.fetched += int64(state[0])
			}
		}
	}
}

// state returns the words of a client, or nothing if it has none.
func (g *groupWork) state(s *source) []uint64 {
	if s.place == 0 {
		return nil
	}
	chunk, at := (s.place-1)/chunkClients, (s.place-1)%chunkClients*g.words
	return g.chunks[chunk][at : at+g.words : at+g.words]
}

// meet returns the words of a client that makes a request, before it is in the client's
// log. Most clients of most logs make one request: only with the second one a client gets
// words of its own. Every estimator is right about a first request, so that nothing is to be
// remembered of it but its time, which is in the log.
func (g *groupWork) meet(s *source) []uint64 {
	if s.requests == 0 {
		clear(g.once)
		return g.once
	}
	if s.place > 0 {
		return g.state(s)
	}
	if g.placed%chunkClients == 0 {
		g.chunks = append(g.chunks, make([]uint64, g.words*chunkClients))
	}
	g.placed++
	s.place = g.placed
	state := g.state(s)
	for i := range g.countings {
		c := &g.countings[i]
		c.estimator.arrive(state[c.at:c.at+c.estimator.words()], s.log.oldest()+c.shift)
	}
	return state
}

// count counts e for all estimators.
func (g *groupWork) count(e event) {
	if int(e.client) == len(g.sources) {
		g.sources = append(g.sources, source{})
	}
	s := &g.sources[e.client]
	state := g.meet(s)
	exact := s.log.Add(e.t, g.period)
	s.requests++
	s.peak = max(s.peak, exact)
	var over uint64 // a bit for each limit
	for i, l := range g.group.limits {
		if exact > l.Threshold {
			over |= 1 << i
			g.limits[i].over++
		}
		if 2*exact >= l.Threshold && exact <= 2*l.Threshold {
			g.limits[i].near++
		}
	}
	inverse := 1 / float64(exact)
	for i := range g.countings {
		c := &g.countings[i]
		words := c.estimator.words()
		mine := state[c.at : c.at+words+2]
		estimate := c.estimator.arrive(mine[:words], e.t+c.shift)
		t := &g.tallies[i]
		mine[words] += t.err(estimate, exact, inverse)
		mine[words+1] |= t.decide(c, g.group.limits, estimate, exact, over)
	}
}

// err adds up how far the estimate is from the exact number, and returns the relative
// error, in 2^−32. inverse is 1/exact.
func (t *tally) err(estimate counter.Estimate, exact uint64, inverse float64) (size uint64) {
	if estimate.Part == 0 && estimate.Whole == exact {
		return 0
	}
	difference := float64(int64(estimate.Whole - exact))
	if estimate.Part != 0 {
		difference += float64(float64(estimate.Part)*float64(estimate.Left)) / float64(estimate.Of)
	}
	signed := int64(math.RoundToEven(difference * inverse * (1 << 32)))
	t.signed += signed
	size = uint64(max(signed, -signed))
	if estimate.Part != 0 {
		t.partly++
		t.partlyErrors += size
	}
	return size
}

// decide holds the estimate against the limits, and returns the client's flags. over has a
// bit for each limit that is exactly exceeded.
func (t *tally) decide(c *counting, limits []Limit, estimate counter.Estimate, exact, over uint64) (flags uint64) {
	for i := range limits {
		if c.limits&(1<<i) == 0 {
			continue
		}
		d := &t.limits[i]
		exactly, estimated := over&(1<<i) != 0, estimate.Over(limits[i].Threshold)
		if estimated {
			d.over++
			flags |= flagOver << (2 * i)
		}
		if exactly == estimated {
			continue
		}
		flags |= flagDiffer << (2 * i)
		if estimated {
			d.wronglyLimited++
		} else {
			d.wronglyAllowed++
			d.worst = max(d.worst, exact)
		}
	}
	return flags
}
