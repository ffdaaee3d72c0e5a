package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/edgelimit/edge/load/judge"
)

// A Progress describes the state of a run.
type Progress struct {
	Elapsed, Of               time.Duration // since the start, and Options.Duration
	Requests, Refused, Failed uint64        // Refused is as in a Report
	Waiting                   uint64        // due but not sent yet
	P50, P99                  int64         // latencies since the last Progress, to within 10%; microseconds
}

// A liveStats holds the statistics of a run in progress.
type liveStats struct {
	mu        sync.Mutex
	counts    Progress
	latencies *hdrhistogram.Histogram // since the last Progress, from when requests were due
}

func (l *liveStats) add(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Requests++
	if r.failure != judge.Answered {
		l.counts.Failed++
		return
	}
	if r.refused() {
		l.counts.Refused++
	}
	recordIn(l.latencies, r.done-r.due)
}

// progress returns the totals so far, and the latencies since the last call.
func (r *run) progress() Progress {
	l := &r.live
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.counts
	p.Elapsed, p.Of = time.Since(r.began), r.o.Duration
	for _, queue := range r.queues {
		p.Waiting += uint64(queue.left())
	}
	p.P50, p.P99 = l.latencies.ValueAtQuantile(50), l.latencies.ValueAtQuantile(99)
	l.latencies.Reset()
	return p
}
