package accesslog

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// A batch is a list of arrivals in chronological order. For entries, the Client of an arrival is the position of the
// entry's record in records.
type batch struct {
	arrivals []Arrival
	records  string
}

// A sorter merges batches and passes them on as arrivals or entries. In memory, it holds back up to limit arrivals. On
// disk, it passes on nothing before finish: it writes runs of limit arrivals to a file, and merges the runs at the end.
type sorter struct {
	ctx      context.Context
	arrivals func([]Arrival) error
	entries  func(*Entry) error // if not nil, instead of arrivals
	limit    int                // maximum number of arrivals to hold
	disk     bool
	dir      string // of the file

	sequences []*sequence // in the order of their next arrivals
	added     int         // number of sequences added so far
	count     int         // number of arrivals in sequences
	entry     Entry
	merged    []Arrival // small parts of sequences that are ready to be passed on
	emitted   bool      // until is set
	until     int64     // time of the newest arrival passed on or written

	file   *os.File
	w      *bufio.Writer
	size   int64 // of the file, in bytes
	runs   []run
	buffer []byte
}

// A sequence is a sorted list of arrivals: a batch, or a run that is read in batches.
type sequence struct {
	place int // in the input: breaks ties between arrivals with the same time
	batch     // not yet passed on
	run       // not yet read
	r     *bufio.Reader
}

// A run is a sorted part of the file.
type run struct {
	from, to int64
	left     int // number of arrivals
}

func (s *sequence) compare(other *sequence) int {
	return cmp.Or(cmp.Compare(s.arrivals[0].Time, other.arrivals[0].Time), cmp.Compare(s.place, other.place))
}

// add adds a batch, which must not be empty.
func (s *sorter) add(b batch) error {
	if first := b.arrivals[0].Time; !s.disk && s.emitted && first < s.until {
		return &OrderError{By: time.Duration(s.until-first) * time.Microsecond, Buffer: s.limit}
	}
	s.push(&sequence{batch: b}, len(b.arrivals))
	switch {
	case !s.disk:
		return s.drain(s.limit)
	case s.count >= s.limit:
		return s.write()
	}
	return nil
}

func (s *sorter) push(q *sequence, arrivals int) {
	q.place = s.added
	s.added++
	s.count += arrivals
	at, _ := slices.BinarySearchFunc(s.sequences, q, (*sequence).compare)
	s.sequences = slices.Insert(s.sequences, at, q)
}

// finish passes on all arrivals held.
func (s *sorter) finish() error {
	if s.file != nil {
		if err := s.write(); err != nil {
			return err
		}
		if err := s.w.Flush(); err != nil {
			return onDisk(err)
		}
		for _, run := range s.runs {
			section := io.NewSectionReader(s.file, run.from, run.to-run.from)
			q := &sequence{run: run, r: bufio.NewReaderSize(section, min(1<<20, max(16<<10, 64<<20/len(s.runs))))}
			if err := s.fill(q); err != nil {
				return err
			}
			s.push(q, q.left+len(q.arrivals))
		}
	}
	s.disk = false
	if err := s.drain(0); err != nil {
		return err
	}
	return s.flush()
}

// drain passes on the oldest arrivals until about keep are held, never leaving fewer.
func (s *sorter) drain(keep int) error {
	for len(s.sequences) > 0 {
		first := s.sequences[0]
		part := s.part()
		if s.count-len(part) < keep {
			return nil
		}
		if err := s.emit(batch{part, first.records}); err != nil {
			return err
		}
		s.count -= len(part)
		s.emitted, s.until = true, part[len(part)-1].Time
		first.arrivals = first.arrivals[len(part):]
		if len(first.arrivals) == 0 && first.left > 0 {
			if err := s.fill(first); err != nil {
				return err
			}
		}
		if len(first.arrivals) == 0 {
			s.sequences[0] = nil // free it
			s.sequences = s.sequences[1:]
			continue
		}
		at, _ := slices.BinarySearchFunc(s.sequences[1:], first, (*sequence).compare)
		copy(s.sequences, s.sequences[1:at+1])
		s.sequences[at] = first
	}
	return nil
}

// part returns the arrivals of the first sequence that precede those of all others: they can be passed on next.
func (s *sorter) part() []Arrival {
	first := s.sequences[0]
	if len(s.sequences) == 1 {
		return first.arrivals
	}
	second := s.sequences[1]
	end := second.arrivals[0].Time
	if first.place < second.place {
		end++ // arrivals at the same time, too
	}
	if first.arrivals[len(first.arrivals)-1].Time < end {
		return first.arrivals
	}
	n := 1
	for first.arrivals[n].Time < end {
		n++
	}
	return first.arrivals[:n]
}

// batchSize is about the minimum number of arrivals passed on together.
const batchSize = 1024

// emit passes on b, or writes it to the file if s sorts on disk and more may be added.
func (s *sorter) emit(b batch) error {
	switch {
	case s.ctx.Err() != nil:
		return s.ctx.Err()
	case s.disk:
		return s.store(b)
	case s.entries == nil && len(s.merged) == 0 && len(b.arrivals) >= batchSize:
		return s.arrivals(b.arrivals)
	case s.entries == nil:
		if s.merged = append(s.merged, b.arrivals...); len(s.merged) >= batchSize {
			return s.flush()
		}
		return nil
	}
	for _, a := range b.arrivals {
		s.entry.Time = a.Time
		s.entry.restore(b.record(a))
		if err := s.entries(&s.entry); err != nil {
			return err
		}
	}
	return nil
}

// flush passes on the merged arrivals.
func (s *sorter) flush() error {
	if len(s.merged) == 0 {
		return nil
	}
	err := s.arrivals(s.merged)
	s.merged = s.merged[:0]
	return err
}

// write writes the held arrivals as a run, or appends them to the last run if they are newer. So runs
// are in input order.
func (s *sorter) write() error {
	if s.count == 0 {
		return nil
	}
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "edge-sort-*")
		if err != nil {
			return onDisk(err)
		}
		s.file, s.w = f, bufio.NewWriterSize(f, 1<<20)
		// If the system can remove open files, nothing is left behind even if the process is killed.
		_ = os.Remove(f.Name())
	}
	if len(s.runs) == 0 || s.sequences[0].arrivals[0].Time < s.until {
		s.runs = append(s.runs, run{from: s.size})
	}
	last := &s.runs[len(s.runs)-1]
	last.left += s.count
	err := s.drain(0)
	last.to = s.size
	return err
}

// store appends b to the file.
func (s *sorter) store(b batch) error {
	for _, a := range b.arrivals {
		s.buffer = binary.LittleEndian.AppendUint64(s.buffer[:0], uint64(a.Time))
		s.buffer = append(s.buffer, a.Client[:]...)
		if s.entries != nil {
			s.buffer = append(s.buffer, b.record(a)...)
		}
		if _, err := s.w.Write(s.buffer); err != nil {
			return onDisk(err)
		}
		s.size += int64(len(s.buffer))
	}
	return nil
}

// fill reads the next arrivals of a run, which store wrote.
func (s *sorter) fill(q *sequence) error {
	q.arrivals = make([]Arrival, min(q.left, 256)) // so that the batches of many runs take little memory
	q.left -= len(q.arrivals)
	text := s.buffer[:0]
	for i := range q.arrivals {
		a := &q.arrivals[i]
		var fixed [8 + len(a.Client)]byte
		if _, err := io.ReadFull(q.r, fixed[:]); err != nil {
			return onDisk(err)
		}
		a.Time, a.Client = int64(binary.LittleEndian.Uint64(fixed[:])), Client(fixed[8:])
		if s.entries != nil {
			from, to := a.Client.position()
			start, end := len(text), len(text)+to-from
			text = slices.Grow(text, end-start)[:end]
			if _, err := io.ReadFull(q.r, text[start:]); err != nil {
				return onDisk(err)
			}
			a.Client = position(start, end)
		}
	}
	q.records, s.buffer = string(text), text
	return nil
}

// close closes and removes the file.
func (s *sorter) close() error {
	if s.file == nil {
		return nil
	}
	defer os.Remove(s.file.Name()) // unless it was removed while it was open
	return s.file.Close()
}

func onDisk(err error) error { return fmt.Errorf("accesslog: sorting on disk: %w", err) }

// position returns the Client of an entry's Arrival: the position of the entry's record.
func position(from, to int) (c Client) {
	binary.LittleEndian.PutUint64(c[:], uint64(from))
	binary.LittleEndian.PutUint64(c[8:], uint64(to))
	return c
}

func (c Client) position() (from, to int) {
	return int(binary.LittleEndian.Uint64(c[:])), int(binary.LittleEndian.Uint64(c[8:]))
}

// record returns the record of an entry.
func (b batch) record(a Arrival) string {
	from, to := a.Client.position()
	return b.records[from:to]
}
