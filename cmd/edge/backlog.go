package main

import (
	"bytes"
	"cmp"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxBacklog is the maximum number of bytes of a log that wait to be written.
	maxBacklog = 1 << 20

	// atomicWrite is what a pipe takes as a whole (PIPE_BUF).
	atomicWrite = 4096

	// lastWords is how long a process that ends waits for its last lines to be written.
	lastWords = time.Second
)

// A backlog holds the lines of a log that wait to be written, so that a log that nobody reads stops nothing. If it is
// full, lines are dropped and counted. Each Write is one or more whole lines.
type backlog struct {
	to      io.Writer
	dropped prometheus.Counter
	wake    chan struct{} // holds at most one
	written chan struct{} // closed when run has returned

	mu      sync.Mutex
	lines   []byte
	writing int // bytes that are being written
	missing int // dropped since the log last said so
	stopped bool
}

func newBacklog(to io.Writer) *backlog {
	return &backlog{to: to, wake: make(chan struct{}, 1), written: make(chan struct{}), dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "edge_log_lines_dropped_total",
		Help: "Lines of the log that were dropped because too many waited to be written.",
	})}
}

func (b *backlog) Write(lines []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines)+b.writing+len(lines) > maxBacklog {
		b.missing++
		b.dropped.Inc()
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

// run writes lines until stop was called and all are written. It reports dropped ones to logger, which writes to b.
func (b *backlog) run(logger *slog.Logger) {
	defer close(b.written)
	var lines []byte
	for range b.wake {
		for {
			b.mu.Lock()
			lines, b.lines = b.lines, lines[:0]
			missing := 0
			if b.writing = len(lines); len(lines) == 0 {
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
				_, _ = b.to.Write(rest[:n]) // there is nobody to tell
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

// stop waits until all lines are written, for at most lastWords. It must be called once.
func (b *backlog) stop() {
	b.mu.Lock()
	b.stopped = true
	close(b.wake)
	b.mu.Unlock()
	select {
	case <-b.written:
	case <-time.After(lastWords):
	}
}
