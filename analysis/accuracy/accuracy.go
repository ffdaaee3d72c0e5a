// Package accuracy measures from logs how accurate rate estimates are.
//
// An [Accuracy] compares estimators with the exact sliding log, request by request, like the
// analysis that this design is known for. With t the time of a request and P the period, the
// exact count is the number of its client's requests in (t−P, t], including the request
// itself; requests with the same time are taken in log order. The estimate is taken right
// after the request was counted. Over means greater than the threshold. A request is wrongly
// allowed if the exact count is over and the estimate is not, and wrongly limited in the
// opposite case.
//
// There is no feedback: every request is counted, even if a limiter would have refused it.
// All decisions are made in integer arithmetic, by [counter.Estimate], and relative errors are summed in
// multiples of 2^−32, so that results depend neither on the number of goroutines nor on the
// order in which clients are processed.
package accuracy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/rule"
)

// Options configures an Accuracy. Limits are required.
type Options struct {
	// Limits are the limits to apply, at most 32 with the same period.
	Limits []Limit `json:"limits"`

	// Estimators are the names of the estimators to compare: see EstimatorNames. If empty, all
	// of them, but packed sub-windows only if they fit one of the limits.
	Estimators []string `json:"estimators"`

	// Phases is the number of window starts to try, spread evenly over a period. The report has
	// the results of the first one, the epoch's, and the ranges of all. If zero, 1.
	Phases int `json:"phases"`

	// Spread spaces each client's requests in a second evenly over that second: the kth of
	// n at (k−½)/n. It is for logs whose times are whole seconds.
	Spread bool `json:"spread"`

	// Resolution is the resolution of the log's times, at most 1 s. If zero, 1 s, or 1 µs with
	// Spread.
	Resolution time.Duration `json:"resolution_ns"`

	// Share is the part of the clients to count. If zero, all of them.
	Share Share `json:"-"`

	// Workers is the number of goroutines that share the clients. It does not affect results. If
	// zero, GOMAXPROCS.
	Workers int `json:"-"`
}

const maxLimits = 32 // per period, so that their flags fit in one word

func (o Options) withDefaults() (Options, error) {
	if len(o.Limits) == 0 {
		return o, errors.New("accuracy: no limit given")
	}
	seen := map[Limit]bool{}
	for _, l := range o.Limits {
		switch {
		case l.Threshold == 0 || l.Threshold > 1<<53:
			return o, fmt.Errorf("accuracy: invalid threshold %d: must be 1 to 2^53", l.Threshold)
		case l.Period < 1e6 || l.Period%1e6 != 0 || l.Period > 7*24*3600*1e6:
			return o, fmt.Errorf("accuracy: invalid period %v: must be whole seconds, 1 s to 7 days",
				time.Duration(l.Period)*time.Microsecond)
		case seen[l]:
			return o, fmt.Errorf("accuracy: the limit %d/%s is given twice", l.Threshold,
				rule.FormatDuration(time.Duration(l.Period)*time.Microsecond))
		}
		seen[l] = true
	}
	if o.Phases < 0 || o.Phases > 1000 {
		return o, fmt.Errorf("accuracy: invalid number of phases %d: must be 1 to 1000", o.Phases)
	}
	o.Phases, o.Share = cmp.Or(o.Phases, 1), cmp.Or(o.Share, Share{1, 1})
	if o.Resolution == 0 && o.Spread {
		o.Resolution = time.Microsecond
	}
	o.Resolution = cmp.Or(o.Resolution, time.Second)
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return o, nil
}

// An Accuracy compares estimators with the exact sliding log, for requests that are passed to
// Add in chronological order. It is not safe for concurrent use. It runs goroutines from the
// first Add until Part.
type Accuracy struct {
	o             Options
	methods       []method
	implicitFixed bool // the fixed window was not requested, and is computed only for comparison
	groups        []group
	clients       *client.Table
	events        uint64
	normal        *normalizer // hashes the requests
	workers       []*worker   // nil before the first Add
	running       sync.WaitGroup
	second        []turn           // with Spread: requests of the current second
	inSecond      map[uint32]int64 // number of requests in second, by client
	first         int64            // time of the first request
	last          int64            // time of the last request
}

// A turn is a request in a second, after k others of its client.
type turn struct {
	event
	k int64
}

// A group is the limits of the same period.
type group struct {
	period      int64
	limits      []Limit
	evaluations []evaluation
	words       int // number of words of a client, for all evaluations
}

// An evaluation is an estimator at one phase. Its words of each client begin at index at: the sum
// of errors, the flags, and the estimator's own words.
type evaluation struct {
	method    int // index in Accuracy.methods
	estimator estimator
	shift     int64  // added to times, for the phase
	limits    uint64 // bit set of the group's limits that it is used for
	at        int
}

// New returns an Accuracy without requests.
func New(o Options) (*Accuracy, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Accuracy{
		o: o, clients: client.NewTable(), normal: newNormalizer(), last: math.MinInt64, inSecond: map[uint32]int64{},
	}
	a.methods = methods(o.Limits)
	if len(o.Estimators) > 0 {
		a.methods = nil
		for _, name := range o.Estimators {
			m, err := methodNamed(name)
			if err != nil {
				return nil, fmt.Errorf("accuracy: %w", err)
			}
			if !slices.ContainsFunc(a.methods, func(other method) bool { return other.name == m.name }) {
				a.methods = append(a.methods, m)
			}
		}
		if a.implicitFixed = !slices.Contains(o.Estimators, fixedName); a.implicitFixed {
			fixed, _ := methodNamed(fixedName)
			a.methods = append(a.methods, fixed)
		}
	}
	for _, l := range o.Limits {
		at := slices.IndexFunc(a.groups, func(g group) bool { return g.period == l.Period })
		if at < 0 {
			at, a.groups = len(a.groups), append(a.groups, group{period: l.Period})
		}
		g := &a.groups[at]
		g.limits = append(g.limits, l)
		if len(g.limits) > maxLimits {
			return nil, fmt.Errorf("accuracy: more than %d limits have the period %v", maxLimits,
				time.Duration(l.Period)*time.Microsecond)
		}
	}
	for i := range a.groups {
		a.addEvaluations(&a.groups[i])
	}
	return a, nil
}

// addEvaluations creates the evaluations of g, in the order of their phases.
func (a *Accuracy) addEvaluations(g *group) {
	add := func(method, phase int, l Limit, limits uint64) {
		e := a.methods[method].make(l, a.o.Resolution.Microseconds())
		g.evaluations = append(g.evaluations, evaluation{method: method, estimator: e, limits: limits,
			shift: g.period * int64(phase) / int64(a.o.Phases), at: g.words})
		g.words += 2 + e.words()
	}
	for phase := range a.o.Phases {
		for i := range a.methods {
			switch m := &a.methods[i]; {
			case m.name == exactName, !m.aligned && phase > 0:
			case m.own:
				for j, l := range g.limits {
					add(i, phase, l, 1<<j)
				}
			default:
				add(i, phase, g.limits[0], 1<<len(g.limits)-1)
			}
		}
	}
}

// Add adds requests, which must be in chronological order. It does not retain batch.
func (a *Accuracy) Add(batch []accesslog.Arrival) error {
	a.start()
	if len(batch) > 0 && a.last == math.MinInt64 {
		a.first = batch[0].Time
	}
	share := a.o.Share
	var hashes [16]uint64
	for chunk := range slices.Chunk(batch, len(hashes)) {
		for i := range chunk {
			hashes[i] = client.Hash(&chunk[i].Client)
			a.clients.Touch(hashes[i])
		}
		for i := range chunk {
			if chunk[i].Time < a.last {
				return fmt.Errorf("accuracy: a request at %d µs comes after one at %d µs", chunk[i].Time, a.last)
			}
			a.last = chunk[i].Time
			number := a.clients.At(hashes[i], &chunk[i].Client)
			a.events++
			a.normal.add(a.last, number)
			switch e := (event{a.last, number / share.Of}); {
			case number%share.Of != share.N-1:
			case a.o.Spread:
				a.gather(e)
			default:
				a.arrive(e)
			}
		}
	}
	return nil
}

// start starts the goroutines unless they are running.
func (a *Accuracy) start() {
	if a.workers != nil {
		return
	}
	for range a.o.Workers {
		w := newWorker(a.groups)
		a.workers = append(a.workers, w)
		a.running.Go(w.run)
	}
}

// gather holds e back until its second has passed. Times are not negative.
func (a *Accuracy) gather(e event) {
	if len(a.second) > 0 && a.second[0].t/1e6 != e.t/1e6 {
		a.spread()
	}
	a.second = append(a.second, turn{e, a.inSecond[e.client]})
	a.inSecond[e.client]++
}

// spread passes on the requests of a second, spread evenly.
func (a *Accuracy) spread() {
	for _, e := range a.second {
		a.arrive(event{e.t/1e6*1e6 + (2*e.k+1)*1e6/(2*a.inSecond[e.client]), e.client})
	}
	a.second = a.second[:0]
	clear(a.inSecond)
}

// arrive passes a request to the worker of its client. Each worker numbers its own clients.
func (a *Accuracy) arrive(e event) {
	n := uint32(len(a.workers))
	w := a.workers[e.client%n]
	w.next = append(w.next, event{e.t, e.client / n})
	if len(w.next) == cap(w.next) {
		w.full <- w.next
		w.next = make([]event, 0, eventsAtOnce)
	}
}
