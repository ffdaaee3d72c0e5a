package accesslog

import (
	"bufio"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// A sorter merges batches of arrivals, each of them sorted. In memory, it holds back up to limit arrivals, and passes
// a sorted log unchanged. On disk, it passes on nothing before finish: it writes runs of limit arrivals to a file, and
// merges the runs at the end.
type sorter struct {
	batches
	ctx   context.Context
	out   *output
	limit int
	disk  bool
	dir   string // of the file

	sequences sequences
	added     int       // number of sequences added so far
	count     int       // number of arrivals in sequences
	merged    []Arrival // parts of sequences that are ready to be passed on
	handed    bool
	until     int64 // time of the newest arrival passed on or written

	file    *os.File
	removed bool
	w       *bufio.Writer
	size    int64
	runs    []run
	buffer  []byte
	fills   uint64
}

// A sequence is a sorted list of arrivals: a batch, or a run that is read in batches.
type sequence struct {
	place int       // in the input: breaks ties between arrivals with the same time
	batch []Arrival // the current batch
	rest  []Arrival // the part of batch not yet passed on
	run             // the part not yet read
	r     *bufio.Reader
}

// A run is a sorted part of the file.
type run struct {
	from, to int64
	arrivals int
}

// add adds a batch, which must be sorted and not empty.
func (s *sorter) add(b []Arrival) error {
	if !s.disk && s.handed && b[0].Time < s.until {
		return &OrderError{By: time.Duration(s.until-b[0].Time) * time.Microsecond, Buffer: s.limit}
	}
	s.push(&sequence{batch: b, rest: b}, len(b))
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
	heap.Push(&s.sequences, q)
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
			s.push(q, run.arrivals)
		}
	}
	s.disk = false
	return s.drain(0)
}

// drain passes on the oldest arrivals until about keep are held, but never fewer.
func (s *sorter) drain(keep int) error {
	for len(s.sequences) > 0 {
		first := s.sequences[0]
		part := s.sequences.part()
		if s.count-len(part) < keep {
			return nil
		}
		s.count -= len(part)
		s.handed, s.until = true, part[len(part)-1].Time
		first.rest = first.rest[len(part):]
		whole := len(part) == len(first.batch)
		if !whole {
			s.merged = append(s.merged, part...)
		}
		if whole || len(s.merged) >= batchSize {
			if err := s.flush(); err != nil {
				return err
			}
		}
		if whole {
			if err := s.hand(part); err != nil {
				return err
			}
		}
		if len(first.rest) == 0 {
			if first.arrivals == 0 {
				heap.Pop(&s.sequences)
				s.put(first.batch)
				continue
			}
			if err := s.fill(first); err != nil {
				return err
			}
		}
		heap.Fix(&s.sequences, 0)
	}
	return s.flush()
}

// flush passes on the merged arrivals.
func (s *sorter) flush() error {
	if len(s.merged) == 0 {
		return nil
	}
	err := s.hand(s.merged)
	s.merged = s.merged[:0]
	return err
}

// hand passes on arrivals, or writes them to the file if s sorts on disk and more may be added.
func (s *sorter) hand(as []Arrival) error {
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if !s.disk {
		return s.out.batch(as)
	}
	for _, a := range as {
		s.buffer = binary.LittleEndian.AppendUint64(s.buffer[:0], uint64(a.Time))
		s.buffer = append(s.buffer, a.Client[:]...)
		if s.out.entries != nil {
			s.buffer = append(s.buffer, s.out.record(a.Client)...)
		}
		if _, err := s.w.Write(s.buffer); err != nil {
			return onDisk(err)
		}
		s.size += int64(len(s.buffer))
	}
	return nil
}

// write writes the held arrivals as a run, or appends them to the last run if they are newer. Thus runs
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
		s.removed = os.Remove(f.Name()) == nil
	}
	if len(s.runs) == 0 || s.sequences[0].rest[0].Time < s.until {
		s.runs = append(s.runs, run{from: s.size})
	}
	last := &s.runs[len(s.runs)-1]
	last.arrivals += s.count
	err := s.drain(0)
	last.to = s.size
	return err
}

// fill reads the next arrivals of a run. Their records are held like those of a block, with numbers that count down
// from the largest.
func (s *sorter) fill(q *sequence) error {
	const atOnce = 256 // so that the batches of many runs take little memory
	q.batch = slices.Grow(q.batch[:0], atOnce)
	s.fills--
	var fixed [8 + len(Client{})]byte
	text := s.buffer[:0]
	for range min(q.arrivals, atOnce) {
		if _, err := io.ReadFull(q.r, fixed[:]); err != nil {
			return onDisk(err)
		}
		a := Arrival{int64(binary.LittleEndian.Uint64(fixed[:])), Client(fixed[8:])}
		if s.out.entries != nil {
			_, from, to := a.Client.reference()
			start, end := len(text), len(text)+int(to-from)
			text = slices.Grow(text, end-start)[:end]
			if _, err := io.ReadFull(q.r, text[start:]); err != nil {
				return onDisk(err)
			}
			a.Client = reference(s.fills, start, end)
		}
		q.batch = append(q.batch, a)
	}
	q.rest, s.buffer = q.batch, text
	q.arrivals -= len(q.batch)
	s.out.take(s.fills, string(text), len(q.batch))
	return nil
}

// close closes and removes the file.
func (s *sorter) close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if !s.removed {
		err = cmp.Or(err, os.Remove(s.file.Name()))
	}
	return err
}

func onDisk(err error) error { return fmt.Errorf("accesslog: sorting on disk: %w", err) }

// sequences is a heap, ordered by the times of the next arrivals.
type sequences []*sequence

func (q sequences) Len() int           { return len(q) }
func (q sequences) Less(i, j int) bool { return q[i].before(q[j]) }
func (q sequences) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *sequences) Push(s any)        { *q = append(*q, s.(*sequence)) }
func (q *sequences) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	*q = (*q)[:last]
	return s
}

func (s *sequence) before(other *sequence) bool {
	a, b := s.rest[0].Time, other.rest[0].Time
	return a < b || a == b && s.place < other.place
}

// part returns what can be passed on next: the arrivals of the first sequence that precede those of all others.
func (q sequences) part() []Arrival {
	rest := q[0].rest
	if len(q) == 1 {
		return rest
	}
	other := q[1]
	if len(q) > 2 && q[2].before(other) {
		other = q[2]
	}
	end := other.rest[0].Time
	if q[0].place < other.place {
		end++ // those of the same time too
	}
	if rest[len(rest)-1].Time < end {
		return rest
	}
	n := 1
	for rest[n].Time < end {
		n++
	}
	return rest[:n]
}

// batches is a free list of batches. It is safe for concurrent use.
type batches struct{ free chan []Arrival }

const batchSize = 2048 // about the number of lines in a block

func (p batches) get() []Arrival {
	select {
	case b := <-p.free:
		return b[:0]
	default:
		return make([]Arrival, 0, batchSize)
	}
}

func (p batches) put(b []Arrival) {
	if cap(b) < batchSize {
		return
	}
	select {
	case p.free <- b:
	default:
	}
}
