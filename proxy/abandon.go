package proxy

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy/conns"
)

// placePatience is how long a request waits while too many others are abandoned.
const placePatience = time.Second

// abandoned holds the requests that wait for the origin's answer without their clients, because a rule
// counts by the answer.
type abandoned struct {
	exchanges conns.Set[*exchange]
	most      int
	place     chan struct{} // sent to for each that ends, if a request waits
	results   map[string]prometheus.Counter
	refused   prometheus.Counter
}

// Results of abandoned requests.
const (
	abandonedAnswered = "answered" // the origin answered, so rules could count it
	abandonedCounted  = "counted"  // counted immediately: a key had too many abandoned requests
	abandonedFailed   = "failed"   // not counted: it was incomplete, or the origin did not answer
)

func newAbandoned(most int, reg prometheus.Registerer) *abandoned {
	a := &abandoned{most: most, place: make(chan struct{})}
	f := promauto.With(reg)
	a.results = by(f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_abandoned_requests_total",
		Help: "Requests that rules count by the response and whose clients disconnected before it arrived, by result.",
	}, []string{"result"}), abandonedAnswered, abandonedCounted, abandonedFailed)
	a.refused = f.NewCounter(prometheus.CounterOpts{
		Name: "edge_abandoned_refused_total",
		Help: "Requests that rules count by the response and that got 503 because too many others were abandoned.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edge_abandoned_requests_waiting",
		Help: "Requests that still wait for the origin's response after their clients disconnected.",
	}, func() float64 { return float64(a.exchanges.Len()) })
	return a
}

// full reports whether new requests must wait.
func (a *abandoned) full() bool { return a.exchanges.Len() >= a.most }

// waitForPlace waits until an abandoned request ends, for at most placePatience.
// It reports whether one ended; each that ends releases one that waits.
func (a *abandoned) waitForPlace() bool {
	select {
	case <-a.place:
		return true
	case <-time.After(placePatience):
		a.refused.Inc()
		return false
	}
}

// remove counts the result of x, then removes x: a node that has drained has counted everything.
func (a *abandoned) remove(x *exchange, result string) {
	a.results[result].Inc()
	a.exchanges.Remove(x)
	if !a.full() {
		select {
		case a.place <- struct{}{}:
		default:
		}
	}
}

// resolve counts an abandoned exchange by the origin's answer. status is 0 if the origin did not answer.
func (x *exchange) resolve(status int, fields limit.Fields) {
	p := x.p
	p.o.Limiter.Resolve(&x.decision, status, fields, p.o.Now())
	result := abandonedAnswered
	if status == 0 {
		result = abandonedFailed
	}
	p.abandoned.remove(x, result)
}

// abandon reports whether x continues, until cancel is called, although its client has disconnected. Otherwise it
// counts x.
func (x *exchange) abandon(cancel context.CancelFunc) bool {
	p := x.p
	x.cancel = cancel
	if !p.abandoned.exchanges.Add(x) {
		return false
	}
	if p.o.Limiter.Abandon(&x.decision, p.o.Now()) {
		return true
	}
	p.abandoned.remove(x, abandonedCounted)
	return false
}
