package lograte

import (
	"bytes"
	"cmp"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/prose"
)

const (
	// maxBacklog is the maximum number of bytes of a log that wait to be written.
	maxBacklog = 1 << 20

	// atomicWrite is the maximum size of a write that a pipe does not split (PIPE_BUF), in bytes.
	atomicWrite = 4096

	// lastWords is how long an exiting process waits for its last lines to be written.
	lastWords = time.Second
)

// A Backlog holds log lines until they are written, so that callers never wait for the log's reader. A full Backlog
// drops lines and counts them. Each Write is one or more whole lines.
type Backlog struct {
	to      io.Writer
	Dropped prometheus.Counter // the metric of dropped lines
	wake    chan struct{}      // capacity 1
	written chan struct{}      // closed when Run has returned

	mu      sync.Mutex // guards the fields below
	lines   []byte
	writing int // bytes that are being written
	missing int // lines dropped since the last warning about them
	stopped bool
}

// NewBacklog returns an empty backlog of lines for to. They are written while Run runs.
func NewBacklog(to io.Writer) *Backlog {
	return &Backlog{to: to, wake: make(chan struct{}, 1), written: make(chan struct{}),
		Dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edge_log_lines_dropped_total",
			Help: "Log lines dropped because too many were waiting to be written.",
		})}
}

// Write keeps lines, or drops and counts them. It never fails.
func (b *Backlog) Write(lines []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines)+b.writing+len(lines) > maxBacklog {
		b.missing++
		b.Dropped.Inc()
		return len(lines), nil
	}
	b.lines = append(b.lines, lines...)
	if !b.stopped {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return len(lines), nil
}

// Run writes lines until Stop is called and all are written. It logs how many were dropped with logger, which must
// write to b.
func (b *Backlog) Run(logger *slog.Logger) {
	defer close(b.written)
	var lines []byte
	for range b.wake {
		for {
			b.mu.Lock()
			lines, b.lines = b.lines, lines[:0]
			missing := 0
			b.writing = len(lines)
			if len(lines) == 0 {
				missing, b.missing = b.missing, 0
			}
			b.mu.Unlock()
			if missing > 0 {
				logger.Warn("log lines dropped: they are written faster than read", "lines", missing)
			} else if len(lines) == 0 {
				break
			}
			for rest := lines; len(rest) > 0; {
				n := wholeLines(rest)
				_, _ = io.WriteString(b.to, prose.Printable(string(rest[:n]), '\n', '\t')) // nothing can log that logging failed
				rest = rest[n:]
			}
		}
	}
}

// wholeLines returns the length of the lines at the beginning of text that fit one write, but at least of one line.
func wholeLines(text []byte) int {
	if len(text) <= atomicWrite {
		return len(text)
	}
	return cmp.Or(bytes.LastIndexByte(text[:atomicWrite], '\n')+1, bytes.IndexByte(text, '\n')+1, len(text))
}

// Stop waits until all lines are written, for at most lastWords. It must be called once.
func (b *Backlog) Stop() {
	b.mu.Lock()
	b.stopped = true
	close(b.wake)
	b.mu.Unlock()
	select {
	case <-b.written:
	case <-time.After(lastWords):
	}
}
