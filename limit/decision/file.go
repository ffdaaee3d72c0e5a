package decision

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/rule"
)

const (
	// files is the maximum number of files of the log.
	files = 4

	bufferSize = 64 << 10

	lineBegin = `{"event":"`

	// lookAgain is how often the log checks whether another program has moved the file.
	lookAgain = time.Second

	// clockStep is how far the clock must move relative to the PoP's for a line about it.
	clockStep = 20 * time.Millisecond

	// maxRefs is the number of rules that get numbers before the log forgets all: many may have been replaced.
	maxRefs = 10_000
)

// A file is the file that lines are written to. It is not safe for concurrent use.
type file struct {
	o       *Options
	missing atomic.Int64 // lines missing from the log that it has not reported yet

	written, failed prometheus.Counter // lines about requests

	out     *os.File // nil while it cannot be opened
	size    int64
	reason  string // in the first line of the file
	buffer  []byte
	lines   int // about requests, in the buffer
	refs    map[*rule.Rule]int
	lastRef int
	ahead   time.Duration // as logged last
	looked  time.Time     // when the file and the clock were last checked
	failing bool
}

// open opens the file and writes a line about the node.
func (f *file) open(now time.Time) error {
	out, err := os.OpenFile(f.o.File, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	info, err := out.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil && isForeign(out) {
		err = errors.New("it is not a decision log")
	}
	if err == nil {
		err = lock(out)
	}
	if err != nil {
		_ = out.Close()
		return err
	}
	f.out, f.size, f.looked = out, info.Size(), now
	last := make([]byte, 1)
	if _, err := out.ReadAt(last, f.size-1); f.size > 0 && (err != nil || last[0] != '\n') {
		f.buffer = append(f.buffer, '\n') // a node was killed while it wrote a line
	}
	f.begin(now)
	return nil
}

// isForeign reports whether f does not begin like a decision log.
func isForeign(f *os.File) bool {
	begin := make([]byte, len(lineBegin))
	n, _ := f.ReadAt(begin, 0)
	return string(begin[:n]) != lineBegin[:n]
}

// begin writes the line that begins a file, or what a restarted node appends to one.
func (f *file) begin(now time.Time) {
	f.refs, f.lastRef = map[*rule.Rule]int{}, 0
	f.ahead = f.o.Ahead()
	f.buffer = appendLine(f.buffer, Line{
		Event: EventNode, Time: now.UnixMicro(), Version: Version, Node: f.o.Node, Reason: f.reason,
		Secret: fmt.Sprintf("%016x", f.o.Secret.Fingerprint()), Share: f.o.Share, Clients: f.o.Clients,
		AheadMicros: f.ahead.Microseconds(),
	})
	f.reason = ReasonRotation
}

// refer returns the number of r, which it describes first if it is new.
func (f *file) refer(r *rule.Rule, t int64) int {
	if ref, known := f.refs[r]; known {
		return ref
	}
	if len(f.refs) >= maxRefs {
		clear(f.refs)
	}
	f.lastRef++
	f.refs[r] = f.lastRef
	f.buffer = appendLine(f.buffer,
		Line{Event: EventRule, Time: t, Ref: f.lastRef, Rule: r.ID, Definition: definitionOf(r)})
	return f.lastRef
}

// flush writes the buffer. Then it rotates the file if it is full, or opens it again if it is not open or was moved.
func (f *file) flush(now time.Time) {
	missing := f.missing.Swap(0)
	if missing > 0 {
		f.buffer = appendLine(f.buffer, Line{Event: EventMissing, Time: now.UnixMicro(), Lines: missing})
	}
	look := now.Sub(f.looked) >= lookAgain
	if look {
		f.looked = now
		if ahead := f.o.Ahead(); (ahead - f.ahead).Abs() >= clockStep {
			f.ahead = ahead
			f.buffer = appendLine(f.buffer, Line{Event: EventClock, Time: now.UnixMicro(), AheadMicros: ahead.Microseconds()})
		}
	}
	if len(f.buffer) > 0 {
		if err := f.writeOut(); err == nil {
			f.written.Add(float64(f.lines))
		} else {
			f.failed.Add(float64(f.lines))
			f.missing.Add(missing + int64(f.lines))
			f.fail(err)
		}
		f.buffer, f.lines = f.buffer[:0], 0
	}
	var err error
	switch {
	case f.out != nil && f.size >= f.o.Size/files:
		err = f.rotate(now)
	case look && f.moved():
		f.close()
		err = f.open(now)
	}
	if err != nil {
		f.fail(err)
	}
}

func (f *file) writeOut() error {
	if f.out == nil {
		return os.ErrNotExist // fail has reported why
	}
	n, err := f.out.Write(f.buffer)
	f.size += int64(n)
	if err != nil {
		f.close() // the next file describes the rules again
		return err
	}
	if f.failing {
		f.failing = false
		f.o.Problem("")
	}
	return nil
}

// fail reports once that the file cannot be written.
func (f *file) fail(err error) {
	if !f.failing {
		f.failing = true
		f.o.Problem(fmt.Sprintf("the decision log cannot be written, so its lines are dropped: %v", err))
	}
}

// moved reports whether the file is not open or no longer has its name.
func (f *file) moved() bool {
	if f.out == nil {
		return true
	}
	opened, err := f.out.Stat()
	named, errNamed := os.Stat(f.o.File)
	return err != nil || errNamed != nil || !os.SameFile(opened, named)
}

// rotate renames the files and begins a new one.
func (f *file) rotate(now time.Time) error {
	f.close()
	for i := files - 1; i > 0; i-- {
		from := f.o.File
		if i > 1 {
			from = fmt.Sprintf("%s.%d", f.o.File, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", f.o.File, i)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return f.open(now)
}

func (f *file) close() {
	if f.out != nil {
		_ = f.out.Close()
		f.out = nil
	}
}
