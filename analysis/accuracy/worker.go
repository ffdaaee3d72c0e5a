package accuracy

import (
	"math"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit/exact"
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
	full   chan []event // events to count
}

const eventsAtOnce = 8192

// groupWork is a worker's state of a group.
type groupWork struct {
	group
	sources  []source
	sums     groupSums
	together int     // number of requests of a client that are counted together
	once     history // reused for each client whose requests are all counted together
	run      run
}

// A source is a client. Its requests wait until there are enough of them or the log ends. Then they
// are counted together, by one estimator after the other. In most logs, most clients send few
// requests and never get a history.
type source struct {
	waiting []int64 // times
	*history
}

// A history is the state of a client's counted requests.
type history struct {
	log      exact.Log
	requests uint64
	peak     uint64 // greatest exact count
	words    []uint64
}

// maxTogether is the maximum number of requests of a client that are counted together. Their times take as much
// memory as a history, so waiting takes no more memory than counting immediately.
const maxTogether = 64

// A run holds requests of one client that are counted together.
type run struct {
	n         int
	exact     [maxTogether]uint64
	inverse   [maxTogether]float64 // 1/exact
	moments   [maxTogether]moment
	estimates [maxTogether]counter.Estimate
}

// A moment is the time of a request and its position in the windows of a period.
type moment struct {
	t       int64
	index   int64 // of the window since the Unix epoch
	elapsed int64
}

// Flags of a client, two for each limit.
const (
	flagOver   = 1 << iota // was over by the estimate
	flagDiffer             // a decision differed
)

func newWorker(groups []group) *worker {
	w := &worker{next: make([]event, 0, eventsAtOnce), full: make(chan []event, 4)}
	for _, g := range groups {
		w.groups = append(w.groups, groupWork{group: g, sums: newGroupSums(g), together: min(max(16, g.words), maxTogether)})
	}
	return w
}

func (w *worker) run() {
	for events := range w.full {
		for i := range w.groups {
			g := &w.groups[i]
			for _, e := range events {
				g.add(e)
			}
		}
	}
	for i := range w.groups {
		w.groups[i].finish()
	}
}

// add queues a request, and counts those of its client once there are enough.
func (g *groupWork) add(e event) {
	if int(e.client) == len(g.sources) {
		g.sources = append(g.sources, source{})
	}
	s := &g.sources[e.client]
	if n := len(s.waiting); n == cap(s.waiting) {
		s.waiting = append(make([]int64, 0, max(4, 4*n)), s.waiting...)
	}
	if s.waiting = append(s.waiting, e.t); len(s.waiting) < g.together {
		return
	}
	if s.history == nil {
		s.history = &history{words: make([]uint64, g.words)}
	}
	g.count(s.history, s.waiting)
	s.waiting = s.waiting[:0]
}

// finish counts the waiting requests, and then the clients.
func (g *groupWork) finish() {
	g.once.words = make([]uint64, g.words)
	for i := range g.sources {
		s := &g.sources[i]
		h := s.history
		if h == nil {
			h = &g.once
			clear(h.words)
			h.log.Clear()
			h.requests, h.peak = 0, 0
		}
		g.count(h, s.waiting)
		g.client(h)
	}
}

func (g *groupWork) count(h *history, times []int64) {
	if len(times) == 0 {
		return
	}
	g.countExact(h, times)
	r := &g.run
	for i := range g.evaluations {
		c := &g.evaluations[i]
		if i == 0 || c.shift != r.moments[0].t-times[0] {
			for j, t := range times {
				m := &r.moments[j]
				m.t = t + c.shift
				m.index, m.elapsed = counter.WindowAt(m.t, g.period)
			}
		}
		c.estimator.arrive(h.words[c.at+2:], r.moments[:r.n], r.estimates[:r.n])
		sums := &g.sums.Evaluations[i]
		h.words[c.at] += sums.addErrors(r)
		for j, l := range g.limits {
			if c.limits&(1<<j) != 0 {
				h.words[c.at+1] |= sums.Limits[j].decide(l.Threshold, r) << (2 * j)
			}
		}
	}
}

// countExact counts requests of a client in its exact log.
func (g *groupWork) countExact(h *history, times []int64) {
	r := &g.run
	r.n = len(times)
	h.requests += uint64(r.n)
	for i, t := range times {
		exact := h.log.Add(t, g.period)
		r.exact[i], r.inverse[i] = exact, 1/float64(exact)
		h.peak = max(h.peak, exact)
	}
	for i, l := range g.limits {
		t := &g.sums.Limits[i]
		for _, exact := range r.exact[:r.n] {
			if exact > l.Threshold {
				t.Over++
			}
			if 2*exact >= l.Threshold && exact <= 2*l.Threshold {
				t.Near++
			}
		}
	}
}

// client counts a client whose requests have all been counted.
func (g *groupWork) client(h *history) {
	g.sums.Logged += 8 * h.peak
	for i, l := range g.limits {
		t := &g.sums.Limits[i]
		t.Peaks.Add(h.peak)
		if h.peak > l.Threshold {
			t.Clients++
		}
	}
	for i := range g.evaluations {
		c, t := &g.evaluations[i], &g.sums.Evaluations[i]
		sum, flags := h.words[c.at], h.words[c.at+1]
		t.Errors += sum
		t.OfClients += sum / h.requests
		for j, l := range g.limits {
			t.Limits[j].client(flags>>(2*j), h.peak, l.Threshold)
		}
	}
}

// client adds a client with these flags and this peak to d.
func (d *decisions) client(flags, peak, threshold uint64) {
	if flags&flagDiffer != 0 {
		d.Differ++
	}
	switch over, limited := peak > threshold, flags&flagOver != 0; {
	case over && !limited:
		d.Missed++
		d.MissedPeak = max(d.MissedPeak, peak)
	case limited && !over:
		d.Limited++
		d.Lowest = min(d.Lowest, peak)
	}
}

// addErrors adds the errors of the estimates of r to t, and returns the sum of the absolute relative
// errors, in units of 2^−32.
func (t *errorSums) addErrors(r *run) (sum uint64) {
	for i := range r.n {
		estimate, exact := &r.estimates[i], r.exact[i]
		if estimate.Part == 0 && estimate.Whole == exact {
			continue
		}
		difference := float64(int64(estimate.Whole - exact))
		if estimate.Part != 0 {
			difference += float64(float64(estimate.Part)*float64(estimate.Left)) / float64(estimate.Of)
		}
		signed := int64(math.RoundToEven(difference * r.inverse[i] * (1 << 32)))
		t.Signed += signed
		size := uint64(max(signed, -signed))
		if estimate.Part != 0 {
			t.Partly++
			t.PartlyErrors += size
		}
		sum += size
	}
	return sum
}

// decide compares the estimates with a threshold, and returns the client's flags.
func (d *decisions) decide(threshold uint64, r *run) (flags uint64) {
	for i := range r.n {
		exactly, estimated := r.exact[i] > threshold, r.estimates[i].Over(threshold)
		if estimated {
			d.Over++
			flags |= flagOver
		}
		if exactly == estimated {
			continue
		}
		flags |= flagDiffer
		if estimated {
			d.WronglyLimited++
		} else {
			d.WronglyAllowed++
			d.Worst = max(d.Worst, r.exact[i])
		}
	}
	return flags
}
