package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
)

// A block is a number of whole lines of one file, and the results of parsing them. Blocks are
// reused during a pass.
type block struct {
	file   int
	layout layout // of the first line
	text   []byte // the lines
	err    error  // from reading; if not nil, this is the last block

	brokenOff bool // the file ends here, incomplete
	done      chan struct{}

	// Results.
	batch
	lines     int64
	malformed int64
	unnamed   int64
	samples   []Sample // with lines relative to the beginning of the block
}

// A cutter cuts the text of a file into blocks at the ends of lines.
type cutter struct {
	text io.Reader
	rest []byte // the beginning of a line, or whole lines, not yet in a block
	end  bool
}

// fill fills b with lines. It reports whether more lines may follow; if not, b may still hold
// the last ones. The error is a read error.
func (c *cutter) fill(b *block, size int) (more bool, err error) {
	text := append(b.text[:0], c.rest...)
	c.rest = c.rest[:0]
	for whole := 0; whole == 0 && !c.end; {
		if len(text) == cap(text) {
			text = append(make([]byte, 0, max(size, 2*cap(text))), text...)
		}
		n, err := readFull(c.text, text[len(text):cap(text)])
		text = text[:len(text)+n]
		whole = bytes.LastIndexByte(text, '\n') + 1
		if c.end = errors.Is(err, io.EOF); err != nil && !c.end {
			b.text = text[:whole]
			return false, err
		}
		if most := maxLine + 2; len(text) > most && bytes.IndexByte(text[:most], '\n') < 0 {
			// The beginning of a line is enough to see that it is too long.
			line, _, _ := bytes.Cut(text, newline)
			text = append(text[:most], text[len(line):]...)
			whole = bytes.LastIndexByte(text, '\n') + 1
		}
		if c.end {
			break
		}
		if whole > 0 {
			c.rest = append(c.rest, text[whole:]...)
			text = text[:whole]
		}
	}
	b.text = text
	return !c.end, nil
}

// readFull reads until b is full or an error occurs, which may be io.EOF. Unlike io.ReadFull,
// it distinguishes the end of a file from that of a truncated compressed one.
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
	entries bool // as entries, not arrivals
	record  record

	// Results of a block.
	arrivals []Arrival
	text     []byte
}

// parse parses the lines of b.
func (w *worker) parse(b *block) {
	b.lines, b.malformed, b.unnamed, b.samples = 0, 0, 0, b.samples[:0]
	w.arrivals, w.text = w.arrivals[:0], w.text[:0]
	malformed := func(line int64, reason string, s []byte) {
		b.malformed++
		if len(b.samples) < maxSamples {
			b.samples = append(b.samples, Sample{Line: line, Reason: reason, Text: string(s[:min(len(s), 200)])})
		}
	}
	layout, r, disordered := b.layout, &w.record, false
	for text := b.text; len(text) > 0; b.lines++ {
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
		if reason := layout.parse(s, r); reason != "" {
			if len(bytes.TrimSpace(s)) > 0 {
				malformed(b.lines, reason, s)
			}
			continue
		}
		if len(r.client) == 1 && r.client[0] == '-' {
			b.unnamed++
		}
		a := Arrival{Time: r.time}
		if n := len(w.arrivals); n > 0 && a.Time < w.arrivals[n-1].Time {
			disordered = true
		}
		if w.entries {
			from := len(w.text)
			w.text = r.append(w.text)
			a.Client = position(from, len(w.text))
		} else {
			a.Client = clientOf(r.client)
		}
		w.arrivals = append(w.arrivals, a)
	}
	b.batch = batch{slices.Clone(w.arrivals), string(w.text)}
	if disordered {
		slices.SortStableFunc(b.arrivals, func(x, y Arrival) int { return cmp.Compare(x.Time, y.Time) })
	}
}
