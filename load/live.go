package load

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A live holds the statistics of a connection during the run. One goroutine writes it; any may
// read it.
type live struct {
	requests, refused, failed atomic.Uint64
	latencies                 [128]atomic.Uint32 // since the request was due, by latencyClass
}

func (l *live) add(r *record) {
	l.requests.Add(1)
	if r.failure != answered {
		l.failed.Add(1)
		return
	}
	if r.status == 429 || r.retry > 0 {
		l.refused.Add(1)
	}
	l.latencies[latencyClass(r.done-r.due)].Add(1)
}

// latencyClass returns the class of a latency in microseconds. It grows by 4 with each doubling.
func latencyClass(t int64) int {
	v := uint64(max(t, 4))
	shift := bits.Len64(v) - 3
	return min(4*shift+int(v>>shift)&3, 127)
}

// classLatency returns the greatest latency of a class, in microseconds.
func classLatency(class int) int64 { return int64(4+class&3+1)<<(class/4) - 1 }

// A Progress describes the state of a run.
type Progress struct {
	Elapsed, Of               time.Duration // since the start, and Options.Duration
	Requests, Refused, Failed uint64        // Refused counts 429 and answers with Retry-After
	Waiting                   uint64        // due but not sent yet
	P50, P99                  int64         // latencies since the last Progress, within a quarter; microseconds
}

// progress returns the progress, with latencies since before, which it updates.
func (r *run) progress(before *[128]uint32) (p Progress) {
	var now [128]uint32
	p.Elapsed, p.Of = time.Since(r.began), r.o.Duration
	r.mu.Lock()
	conns := r.conns
	r.mu.Unlock()
	for _, c := range conns {
		p.Requests += c.live.requests.Load()
		p.Refused += c.live.refused.Load()
		p.Failed += c.live.failed.Load()
		for i := range now {
			now[i] += c.live.latencies[i].Load()
		}
	}
	for _, l := range r.lanes {
		p.Waiting += uint64(l.left())
	}
	var total, sum uint32
	for i := range now {
		total += now[i] - before[i]
	}
	for i := range now {
		sum += now[i] - before[i]
		if p.P50 == 0 && sum > 0 && sum >= (total+1)/2 {
			p.P50 = classLatency(i)
		}
		if p.P99 == 0 && sum > 0 && uint64(sum)*100 >= uint64(total)*99 {
			p.P99 = classLatency(i)
		}
	}
	*before = now
	return p
}
