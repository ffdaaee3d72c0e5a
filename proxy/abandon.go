package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy/conns"
)

const (
	// maxAbandoned is the maximum number of abandoned requests of a node.
	maxAbandoned = 1024

	// abandonedPatience is how long an abandoned request waits for the origin's answer.
	abandonedPatience = 10 * time.Second
)

// abandonedRequests are requests whose clients are gone, but that still wait for the origin's answer because a rule
// counts by the answer.
type abandonedRequests struct {
	exchanges conns.Set[*exchange]
	places    *conns.Budget
	results   map[string]prometheus.Counter
}

// Results of abandoned requests.
const (
	abandonedAnswered = "answered" // the origin answered, so rules could count it
	abandonedDropped  = "dropped"  // too many, or the node is stopping: counted only for keys above half a threshold
	abandonedFailed   = "failed"   // the origin did not answer, so it was not counted
)

func newAbandonedRequests(reg prometheus.Registerer) *abandonedRequests {
	a := &abandonedRequests{places: conns.NewBudget(maxAbandoned, 0, func(bool) {})}
	f := promauto.With(reg)
	a.results = by(f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_abandoned_requests_total",
		Help: "Requests that rules count by the response and whose clients disconnected or stopped sending before it " +
			"arrived, by result.",
	}, []string{"result"}), abandonedAnswered, abandonedDropped, abandonedFailed)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_abandoned_requests_waiting",
		Help: "Requests that still wait for the origin's response after their clients disconnected or stopped sending.",
	}, func() float64 { return float64(a.exchanges.Len()) })
	return a
}

// Gone notes that the client has disconnected or will not send the rest of its request. It reports whether the exchange
// continues without the client, because a rule counts by the answer. If so, end is called if the answer takes too long,
// or to make room for other exchanges.
func (x *exchange) Gone(end func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered || !x.decision.CountsAnswer() {
		return false
	}
	a, now := x.p.abandoned, x.p.o.Now()
	if !x.p.o.Limiter.Abandon(&x.decision, now) {
		a.results[abandonedDropped].Inc()
		return false
	}
	if !a.exchanges.Add(x) { // the node is stopping and no longer waits
		x.p.o.Limiter.Forsake(&x.decision, now)
		a.results[abandonedDropped].Inc()
		return false
	}
	x.abandoned.Store(true)
	x.cancel, x.timer = end, time.AfterFunc(abandonedPatience, func() { x.stopWaiting(false) })
	x.place = a.places.Holder(x, x.p.o.Client.Client(x.client))
	x.place.Hold(1)
	return true
}

// Close ends an abandoned exchange to make room for others.
func (x *exchange) Close() error {
	x.stopWaiting(true)
	return nil
}

// stopWaiting ends an abandoned exchange unless it has ended. dropped says that it ends before its time is up.
func (x *exchange) stopWaiting(dropped bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cancel != nil {
		x.dropped = dropped
		x.cancel()
	}
}

// resolve counts an abandoned exchange by the origin's answer. status is 0 if the origin did not answer.
func (x *exchange) resolve(status int, fields limit.Fields) {
	a, l, now := x.p.abandoned, x.p.o.Limiter, x.p.o.Now()
	x.mu.Lock()
	x.timer.Stop()
	x.cancel = nil
	dropped := x.dropped && status == 0
	x.mu.Unlock()
	switch {
	case dropped:
		l.Forsake(&x.decision, now)
		a.results[abandonedDropped].Inc()
	case status == 0:
		l.Resolve(&x.decision, 0, nil, now)
		a.results[abandonedFailed].Inc()
	default:
		l.Resolve(&x.decision, status, fields, now)
		a.results[abandonedAnswered].Inc()
	}
	x.place.Hold(0)
	a.exchanges.Remove(x) // last: Drain waits for this, so a node that has drained has counted everything
}
