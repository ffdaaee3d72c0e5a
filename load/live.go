package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A live holds the statistics of a connection during the run.
type live struct {
	mu                        sync.Mutex
	requests, refused, failed uint64
	latencies                 *hdrhistogram.Histogram // since the last Progress, from when requests were due; nil if none
}

func (l *live) add(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if r.failure != answered {
		l.failed++
		return
	}
	if r.status == 429 || r.retry > 0 {
		l.refused++
	}
	if l.latencies == nil {
		l.latencies = newHistogram(1)
	}
	recordIn(l.latencies, r.done-r.due)
}

// heard reports whether a request was answered.
func (l *live) heard() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests > l.failed
}

// A Progress describes the state of a run.
type Progress struct {
	Elapsed, Of               time.Duration // since the start, and Options.Duration
	Requests, Refused, Failed uint64        // Refused counts 429 and answers with Retry-After
	Waiting                   uint64        // due but not sent yet
	P50, P99                  int64         // latencies since the last Progress, to within 10%; microseconds
}

// progress returns the progress since the last call.
func (r *run) progress() (p Progress) {
	p.Elapsed, p.Of = time.Since(r.began), r.o.Duration
	r.mu.Lock()
	conns := r.conns
	r.mu.Unlock()
	latencies := newHistogram(1)
	for _, c := range conns {
		l := &c.live
		l.mu.Lock()
		p.Requests, p.Refused, p.Failed = p.Requests+l.requests, p.Refused+l.refused, p.Failed+l.failed
		if l.latencies != nil {
			latencies.Merge(l.latencies)
			l.latencies.Reset()
		}
		l.mu.Unlock()
	}
	for _, l := range r.queues {
		p.Waiting += uint64(l.left())
	}
	p.P50, p.P99 = latencies.ValueAtQuantile(50), latencies.ValueAtQuantile(99)
	return p
}
