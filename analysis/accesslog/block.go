package accesslog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
)

// A block is a number of whole lines of one file, and the results of parsing them. Blocks are
// reused during a pass.
type block struct {
	file   int
	number uint64
	layout layout
	buffer []byte
	text   []byte // the lines, in buffer
	long   int64  // number of lines before text that are too long, and not in it
	torn   bool   // the file is truncated after text
	err    error  // from reading; if not nil, this is the last block
	done   chan struct{}

	// Results.
	arrivals  []Arrival // in order
	records   string    // for entries: the Client of an Arrival refers to its record in here
	first     int64     // time of the first entry, in input order
	last      int64     // time of the last one
	steps     int64
	lines     int64
	malformed int64
	unnamed   int64
	size      int64
	samples   []Sample // with lines relative to the beginning of the block
}

// A cutter cuts the text of a file into blocks at the ends of lines.
type cutter struct {
	text    io.Reader
	rest    []byte // the beginning of a line, or whole lines, not yet in a block
	maxLine int
	parts   bool // lines may be split into parts, which must be in one block
	long    bool // within a line that is too long
	end     bool
}

// fill fills b with lines. It reports whether more lines may follow; if not, b may still hold
// the last ones. The error is that of reading.
func (c *cutter) fill(b *block, size int) (more bool, err error) {
	b.long = 0
	buffer := append(b.buffer[:0], c.rest...)
	c.rest = c.rest[:0]
	for !c.end {
		if len(buffer) == cap(buffer) {
			buffer = append(make([]byte, 0, max(size, 2*cap(buffer))), buffer...)
		}
		n, err := readFull(c.text, buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if c.end = errors.Is(err, io.EOF); err != nil && !c.end {
			b.buffer, b.text = buffer, buffer[:bytes.LastIndexByte(buffer, '\n')+1]
			return false, err
		}
		if c.long {
			i := bytes.IndexByte(buffer, '\n')
			if i < 0 {
				buffer = buffer[:0]
				continue
			}
			c.long = false
			buffer = buffer[:copy(buffer, buffer[i+1:])]
			if !c.end && len(buffer) < cap(buffer) {
				continue
			}
		}
		if i := bytes.LastIndexByte(buffer, '\n'); i >= 0 || c.end {
			if !c.end {
				whole := i + 1
				if c.parts {
					if whole = wholeLines(buffer[:whole], len(buffer), c.maxLine); whole == 0 {
						continue
					}
				}
				c.rest = append(c.rest, buffer[whole:]...)
				buffer = buffer[:whole]
			}
			break
		}
		if len(buffer) > c.maxLine {
			c.long = true
			b.long++
			buffer = buffer[:0]
		}
	}
	b.buffer, b.text = buffer, buffer
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

// parse parses the lines of b. If whole entries are read, it also sets b.records.
func (b *block) parse(w *worker) {
	b.arrivals, b.records, b.samples = w.free.get(), "", b.samples[:0]
	b.lines, b.malformed, b.unnamed, b.steps = b.long, b.long, 0, 0
	b.size = int64(len(b.text))
	for i := range b.long {
		w.sample(b, i, "the line is too long", nil)
	}
	r := &w.record
	r.need = w.need
	w.text = w.text[:0]
	if p, prefixed := b.layout.(prefixed); prefixed && p.parts {
		w.joiner.max, w.joiner.lost = w.maxLine, func(line int64, part []byte) {
			b.malformed++
			w.sample(b, line, "part of a line whose end is missing", part)
		}
		defer w.joiner.expire(math.MaxInt)
	} else {
		w.joiner.max = 0
	}
	for text := b.text; len(text) > 0; {
		s, ending := text, 0 // bytes that end the line
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			s, text, ending = text[:i], text[i+1:], 1
		} else {
			text = nil
		}
		b.lines++
		if b.torn && text == nil {
			w.malformed(b, "truncated at the end of the file", s)
			continue
		}
		if n := len(s); n > 0 && s[n-1] == '\r' {
			s = s[:n-1]
			ending++
		}
		if s = withoutHole(s); len(s) == 0 || s[0] == '#' {
			continue
		}
		if w.joiner.max > 0 {
			var whole bool
			if s, whole = w.joiner.join(s, b.lines-1, len(b.text)-len(text)-ending); !whole || len(s) == 0 {
				continue
			}
		}
		if len(s) > w.maxLine {
			w.malformed(b, "the line is too long", s)
			continue
		}
		r.reset()
		if reason := b.layout.parse(s, r); reason != "" {
			if len(bytes.TrimSpace(s)) > 0 {
				w.malformed(b, reason, s)
			}
			continue
		}
		if len(r.client) == 1 && r.client[0] == '-' {
			b.unnamed++
		}
		if n := len(b.arrivals); n > 0 && r.time < b.arrivals[n-1].Time {
			b.steps++
		}
		if !w.entries {
			b.arrivals = append(b.arrivals, Arrival{r.time, clientOf(r.client)})
			continue
		}
		from := len(w.text)
		w.text = r.append(w.text)
		b.arrivals = append(b.arrivals, Arrival{r.time, reference(b.number, from, len(w.text))})
	}
	b.records = string(w.text)
	if n := len(b.arrivals); n > 0 {
		b.first, b.last = b.arrivals[0].Time, b.arrivals[n-1].Time
	}
	if b.steps > 0 {
		slices.SortStableFunc(b.arrivals, func(x, y Arrival) int { return cmp.Compare(x.Time, y.Time) })
	}
	// If few lines fill a block, the buffers of a million entries must not be mostly empty.
	if n := len(b.arrivals); 4*n < cap(b.arrivals) {
		few := slices.Clone(b.arrivals)
		w.free.put(b.arrivals)
		b.arrivals = few
	}
}

// reference returns the Client of an entry's Arrival: the position of the entry's record.
func reference(number uint64, from, to int) (c Client) {
	binary.LittleEndian.PutUint64(c[:], number)
	binary.LittleEndian.PutUint32(c[8:], uint32(from))
	binary.LittleEndian.PutUint32(c[12:], uint32(to))
	return c
}

func (c Client) reference() (number uint64, from, to uint32) {
	return binary.LittleEndian.Uint64(c[:]), binary.LittleEndian.Uint32(c[8:]), binary.LittleEndian.Uint32(c[12:])
}

// A worker parses blocks.
type worker struct {
	entries bool // as entries, not arrivals
	need    Fields
	maxLine int
	keep    int // maximum number of malformed lines kept
	free    batches
	joiner  joiner
	record  record
	text    []byte
}

func (w *worker) malformed(b *block, reason string, s []byte) {
	b.malformed++
	w.sample(b, b.lines-1, reason, s)
}

func (w *worker) sample(b *block, line int64, reason string, s []byte) {
	if len(b.samples) < w.keep {
		b.samples = append(b.samples, Sample{Line: line, Reason: reason, Text: string(s[:min(len(s), 200)])})
	}
}
