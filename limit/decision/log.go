// Package decision writes the decision log of a node: the decisions about a sample of keys, and the
// counts of their requests, as lines of JSON. The sample is the same on every node, so that the logs
// of a PoP together contain every request of its keys. Package analysis/decisions replays them. [Line]
// describes the format.
package decision

import (
	"context"
	"encoding/binary"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// Options configures a Log. All fields but Clients, Ahead and Registerer are required.
type Options struct {
	// File is the file to write. When it has grown to a quarter of Size, it is renamed to File.1, which
	// is renamed to File.2, and that to File.3; the oldest is deleted.
	File string
	Size int64

	Share float64 // fraction of keys that are logged, from 0 to 1

	// Node is the name of the node, and Secret the secret of the PoP.
	Node   string
	Secret counter.Secret

	// Clients logs the client's address, and the key as lists of mitigations show it. Otherwise, lines have a pseudonym
	// instead of the key: a keyed hash that is the same on every node.
	Clients bool

	// Ahead returns how far the node's clock is ahead of the PoP's. If nil, 0.
	Ahead func() time.Duration

	// Problem is called with a description when the log cannot be written, and with "" once it can be again.
	Problem func(text string)

	Now        func() time.Time
	Registerer prometheus.Registerer // if nil, the metrics are not registered
}

const (
	queued = 4096 // requests that wait to be written
	kept   = 1000 // lines that Recent returns
)

// One goroutine, Run, writes a Log. Requests never wait for it: if its queue is full, lines are dropped and counted. A
// nil Log samples nothing.
type Log struct {
	o     Options
	below uint64 // keys whose first 64 bits are below it are logged
	queue chan *Batch
	free  chan *Batch // for reuse
	file  file
	full  prometheus.Counter // dropped lines

	mu     sync.Mutex // guards the fields below
	recent [kept]Line // a ring
	lines  int        // number of lines ever written to recent
}

// New returns a Log. It opens no file.
func New(o Options) *Log {
	if o.Ahead == nil {
		o.Ahead = func() time.Duration { return 0 }
	}
	l := &Log{o: o, below: math.MaxUint64, queue: make(chan *Batch, queued), free: make(chan *Batch, queued)}
	if o.Share < 1 {
		l.below = uint64(o.Share * (1 << 63) * 2)
	}
	l.file = file{o: &l.o, reason: ReasonStart}
	f := promauto.With(o.Registerer)
	l.file.written = f.NewCounter(prometheus.CounterOpts{
		Name: "edge_decision_log_lines_total", Help: "Lines about requests written to the decision log.",
	})
	dropped := f.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_decision_log_dropped_total",
		Help: "Lines about requests that are missing from the decision log, by cause.",
	}, []string{"cause"})
	l.full, l.file.failed = dropped.WithLabelValues("queue_full"), dropped.WithLabelValues("write_failed")
	return l
}

// Samples reports whether the decisions about key are logged. Keys are keyed hashes, the same on
// every node.
func (l *Log) Samples(key counter.Key) bool {
	return l != nil && binary.BigEndian.Uint64(key[:8]) < l.below
}

// A Batch holds the decisions about one request under keys of the sample.
type Batch struct {
	Time     int64 // of the decision or the count, in microseconds since the Unix epoch
	Verdict  string
	Decider  *rule.Rule // rule that determined the verdict, if one did
	Client   netip.Addr
	Counting bool  // a count by the answer to a request that was decided before, at Decided
	Decided  int64 // 0 if that is not known

	Keys []Key
}

// A Key is one of the keys of a request.
type Key struct {
	Rule       *rule.Rule
	Key        counter.Key
	Generation uint32 // how often the key's mitigation was lifted before
	Mitigated  bool
	ByHand     bool // an operator made the mitigation
	Other      bool // the request is refused because of another key
	Counted    bool
	Cost       uint64 // how much the request counts if it passes
}

// Add adds a key of the sample to a batch, which is nil for the first one.
func (l *Log) Add(b *Batch, k Key) *Batch {
	if b == nil {
		select {
		case b = <-l.free:
			*b = Batch{Keys: b.Keys[:0]}
		default:
			b = new(Batch)
		}
	}
	b.Keys = append(b.Keys, k)
	return b
}

// Offer queues a batch for writing. The caller must not use it afterwards. Offer never blocks.
func (l *Log) Offer(b *Batch) {
	n := len(b.Keys)
	select {
	case l.queue <- b:
	default:
		l.full.Add(float64(n))
		l.file.missing.Add(int64(n))
		l.release(b)
	}
}

// release makes b available for reuse.
func (l *Log) release(b *Batch) {
	b.Decider = nil
	clear(b.Keys) // drop references to old rules
	select {
	case l.free <- b:
	default:
	}
}

// Open opens the file, so that errors show before Run.
func (l *Log) Open() error { return l.file.open(l.o.Now()) }

// delay is how long lines are buffered.
const delay = 100 * time.Millisecond

// Run writes lines until ctx is done, then writes those that are queued, and closes the file.
func (l *Log) Run(ctx context.Context) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for running := true; running; {
		select {
		case b := <-l.queue:
			l.write(b)
			continue
		case <-timer.C:
		case <-ctx.Done():
			running = false
		}
		for len(l.queue) > 0 { // nothing else receives from it
			l.write(<-l.queue)
		}
		l.file.flush(l.o.Now())
		timer.Reset(delay)
	}
	l.file.close()
}

// write appends the lines of b to the file's buffer, and releases b.
func (l *Log) write(b *Batch) {
	for i := range b.Keys {
		line := b.line(&b.Keys[i], l.file.refer(b.Keys[i].Rule, b.Time), &l.o)
		l.mu.Lock()
		l.recent[l.lines%kept] = line
		l.lines++
		l.mu.Unlock()
		l.file.buffer = appendLine(l.file.buffer, line)
		l.file.lines++
	}
	l.release(b)
	if len(l.file.buffer) > bufferSize {
		l.file.flush(l.o.Now())
	}
}

// Recent returns the last lines about requests, newest first.
func (l *Log) Recent() (lines []Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range min(l.lines, kept) {
		lines = append(lines, l.recent[(l.lines-1-i)%kept])
	}
	return lines
}
