package accesslog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
)

// pass reads all of the input: a goroutine reads blocks, others parse them, and the caller's goroutine sorts their
// entries and passes them to f.
func (l *Log) pass(ctx context.Context, need Fields, f func(*Entry) error) (err error) {
	l.read.Store(0)
	l.stats = Stats{Files: make([]FileStats, len(l.sources))}
	for i, s := range l.sources {
		l.stats.Files[i] = s.FileStats
	}
	o := &sorter{ctx: ctx, pass: f, limit: l.o.Buffer, disk: l.o.Disk, dir: l.o.TempDir, until: math.MinInt64}
	defer func() { err = cmp.Or(err, o.close()) }()

	ctx, cancel := context.WithCancel(ctx)
	idle := make(chan *worker, l.o.Workers)
	blocks := make(chan *block, l.o.Workers+2) // in input order
	for range l.o.Workers {
		w := new(worker)
		w.record.need, w.record.clock.location = need, l.o.Location
		idle <- w
	}
	go l.cut(ctx, idle, blocks)
	defer func() {
		cancel()
		if l.Again() { // else the reader may be blocked on a silent sender; it ends when the read returns
			for range blocks {
			}
		}
	}()
	for {
		var b *block
		select {
		case b = <-blocks:
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case b == nil:
			return o.finish()
		case b.done != nil:
			<-b.done
		}
		l.stats.count(b)
		if len(b.items) > 0 {
			if err := o.add(b.items, b.text); err != nil {
				if late := new(OrderError); errors.As(err, &late) {
					late.File, late.Again = l.sources[b.file].Name, l.Again()
				}
				return err
			}
		}
		if b.err != nil {
			return b.err
		}
	}
}

// cut reads the input, cuts it into blocks, and lets idle workers parse them.
func (l *Log) cut(ctx context.Context, idle chan *worker, blocks chan<- *block) {
	defer close(blocks)
	send := func(b *block) {
		select {
		case blocks <- b:
		case <-ctx.Done():
		}
	}
	for i, s := range l.sources {
		f, err := s.take()
		if err == nil {
			err = cmp.Or(l.cutFile(ctx, i, f, idle, send), f.Close())
		}
		if err != nil || ctx.Err() != nil {
			send(&block{file: i, err: err})
			return
		}
	}
}

func (l *Log) cutFile(ctx context.Context, i int, f *file, idle chan *worker, send func(*block)) error {
	s := l.sources[i]
	c := &cutter{text: f}
	layout := s.layout
	for !c.end {
		var w *worker
		select {
		case w = <-idle:
		case <-ctx.Done():
			return nil
		}
		err := c.fill(w, l.o.block)
		b := &block{file: i, layout: layout, brokenOff: s.brokenOff(err), done: make(chan struct{})}
		if c, ok := layout.(*columns); ok {
			layout = c.after(w.lines)
		}
		go func() {
			w.parse(b)
			close(b.done)
			idle <- w
		}()
		send(b)
		if err != nil && !b.brokenOff {
			return s.failed(err)
		}
	}
	return nil
}

// A block is a run of whole lines of one file, and the results of parsing them.
type block struct {
	file   int
	layout layout // of the first line
	err    error  // from reading; if not nil, this is the last block

	brokenOff bool          // the compressed file is truncated after this block
	done      chan struct{} // closed when it is parsed; nil if it has no lines

	// Results.
	items     []item // in chronological order
	text      string // of items
	lines     int64
	malformed int64
	unnamed   int64
	dates     Order
	samples   []Sample // with lines relative to the beginning of the block
}

// A cutter cuts the text of a file into blocks at the ends of lines.
type cutter struct {
	text io.Reader
	rest []byte // the beginning of a line, or whole lines, not yet in a block
	end  bool
}

// fill reads the next lines into w.lines. It sets c.end if they are the last ones, and returns the read error, if
// any, that ended the file early.
func (c *cutter) fill(w *worker, size int) error {
	text := append(slices.Grow(w.lines[:0], max(size, 2*len(c.rest))), c.rest...)
	defer func() { w.lines = text }()
	for {
		text = slices.Grow(text, 1)
		n, err := readFull(c.text, text[len(text):cap(text)])
		text = text[:len(text)+n]
		whole := bytes.LastIndexByte(text, '\n') + 1
		switch c.end = err != nil; {
		case c.end && !errors.Is(err, io.EOF):
			text = text[:whole]
			return err
		case c.end:
			return nil
		}
		if most := maxLine + 2; len(text) > most && bytes.IndexByte(text[:most], '\n') < 0 {
			// The beginning of a line is enough to see that it is too long.
			line, _, _ := bytes.Cut(text, newline)
			text = append(text[:most], text[len(line):]...)
			whole = bytes.LastIndexByte(text, '\n') + 1
		}
		if whole > 0 {
			c.rest = append(c.rest[:0], text[whole:]...)
			text = text[:whole]
			return nil
		}
	}
}

// readFull reads until b is full or an error occurs, which may be io.EOF. Unlike io.ReadFull, it does not turn io.EOF
// into io.ErrUnexpectedEOF, which here means that a compressed file is truncated.
func readFull(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = r.Read(b[n:])
		n += more
	}
	return n, err
}

// A worker parses blocks.
type worker struct {
	record record
	lines  []byte // of the block

	// Results of a block.
	items []item
	text  []byte
}

// parse parses the lines of b, which fill has read.
func (w *worker) parse(b *block) {
	w.items, w.text = w.items[:0], w.text[:0]
	malformed := func(line int64, reason string, s []byte) {
		b.malformed++
		if len(b.samples) < maxSamples {
			b.samples = append(b.samples, Sample{Line: line, Reason: reason, Text: string(s[:min(len(s), 200)])})
		}
	}
	layout, r, disordered := b.layout, &w.record, false
	r.clock.forget()
	for text := withoutColors(w.lines); len(text) > 0; b.lines++ {
		s, rest, _ := bytes.Cut(text, newline)
		text = rest
		s = withoutMarks(s)
		if c, ok := layout.(*columns); ok && len(s) > 0 && s[0] == '#' {
			layout = c.withDirective(s)
		}
		if len(s) == 0 || s[0] == '#' {
			continue
		}
		if len(s) > maxLine {
			malformed(b.lines, "the line is too long", s)
			continue
		}
		r.reset()
		reason := layout.parse(s, r)
		if reason == "" && r.time < 0 {
			reason = "the time is before 1970: the clock was probably not set"
		}
		if reason != "" {
			if len(bytes.TrimSpace(s)) > 0 {
				malformed(b.lines, reason, s)
			}
			continue
		}
		if len(r.client) == 1 && r.client[0] == '-' {
			b.unnamed++
		}
		if n := len(w.items); n > 0 && r.time < w.items[n-1].time {
			disordered = true
		}
		from := len(w.text)
		w.text = r.append(w.text)
		w.items = append(w.items, item{r.time, uint32(from), uint32(len(w.text))})
	}
	b.dates = r.clock.order
	b.items, b.text = slices.Clone(w.items), string(w.text)
	if disordered {
		slices.SortStableFunc(b.items, func(x, y item) int { return cmp.Compare(x.time, y.time) })
	}
}
