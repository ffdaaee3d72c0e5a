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

// An item is an entry to be sorted: its time, and where in the text of its batch the rest of it is, as record.append
// encodes it. Many items are held, so they have no pointers, which garbage collection would follow.
type item struct {
	time     int64
	from, to uint32
}

// A sorter merges batches of items in chronological order, and passes on their entries. In memory, it holds back up to
// limit items. On disk, it passes on nothing before finish: it writes runs of limit items to a file, and merges the runs
// at the end.
type sorter struct {
	ctx   context.Context
	pass  func(*Entry) error
	limit int // maximum number of items to hold
	disk  bool
	dir   string // of the file

	sequences []*sequence // in the order of their next items
	added     int         // number of sequences added so far
	count     int         // number of items in sequences
	entry     Entry
	until     int64 // time of the newest item passed on, or of the distant past

	file   *os.File
	w      *bufio.Writer
	size   int64 // of the file, in bytes
	runs   []run
	buffer []byte
}

// A sequence is a sorted list of items: a batch, or a run that is read in batches.
type sequence struct {
	place int    // in the input: breaks ties between items with the same time
	items []item // not yet passed on
	text  string // of items
	run          // not yet read
	r     *bufio.Reader
}

// A run is a sorted part of the file.
type run struct {
	from, to int64
	left     int // number of items
}

func (s *sequence) compare(other *sequence) int {
	return cmp.Or(cmp.Compare(s.items[0].time, other.items[0].time), cmp.Compare(s.place, other.place))
}

// add adds a batch, which must not be empty, and its text.
func (s *sorter) add(batch []item, text string) error {
	if first := batch[0].time; !s.disk && first < s.until {
		return &OrderError{By: time.Duration(s.until-first) * time.Microsecond, Buffer: s.limit}
	}
	s.push(&sequence{items: batch, text: text}, len(batch))
	switch {
	case !s.disk:
		return s.drain(s.limit)
	case s.count >= s.limit:
		return s.write()
	}
	return nil
}

func (s *sorter) push(q *sequence, items int) {
	q.place = s.added
	s.added++
	s.count += items
	at, _ := slices.BinarySearchFunc(s.sequences, q, (*sequence).compare)
	s.sequences = slices.Insert(s.sequences, at, q)
}

// finish passes on all items held.
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
			s.push(q, q.left+len(q.items))
		}
	}
	s.disk = false
	return s.drain(0)
}

// drain passes on the oldest items until about keep are held, never leaving fewer.
func (s *sorter) drain(keep int) error {
	for len(s.sequences) > 0 {
		first := s.sequences[0]
		part := s.part()
		if s.count-len(part) < keep {
			return nil
		}
		if err := s.emit(part, first.text); err != nil {
			return err
		}
		s.count -= len(part)
		s.until = part[len(part)-1].time
		first.items = first.items[len(part):]
		if len(first.items) == 0 && first.left > 0 {
			if err := s.fill(first); err != nil {
				return err
			}
		}
		if len(first.items) == 0 {
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

// part returns the items of the first sequence that precede those of all others: they can be passed on next.
func (s *sorter) part() []item {
	first := s.sequences[0]
	if len(s.sequences) == 1 {
		return first.items
	}
	second := s.sequences[1]
	end := second.items[0].time
	if first.place < second.place {
		end++ // items at the same time, too
	}
	if first.items[len(first.items)-1].time < end {
		return first.items
	}
	n := 1
	for first.items[n].time < end {
		n++
	}
	return first.items[:n]
}

// emit passes on items, or writes them to the file if s sorts on disk and more may be added.
func (s *sorter) emit(items []item, text string) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	for _, i := range items {
		record := text[i.from:i.to]
		if s.disk {
			if err := s.store(i.time, record); err != nil {
				return onDisk(err)
			}
			continue
		}
		s.entry.Time = i.time
		s.entry.restore(record)
		if err := s.pass(&s.entry); err != nil {
			return err
		}
	}
	return nil
}

// write writes the held items as a run.
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
	next := run{from: s.size, left: s.count}
	err := s.drain(0)
	next.to = s.size
	s.runs = append(s.runs, next)
	return err
}

// store appends an item to the file.
func (s *sorter) store(at int64, record string) error {
	s.buffer = binary.LittleEndian.AppendUint64(s.buffer[:0], uint64(at))
	s.buffer = appendText(s.buffer, record)
	s.size += int64(len(s.buffer))
	_, err := s.w.Write(s.buffer)
	return err
}

// fill reads the next items of a run, which store wrote.
func (s *sorter) fill(q *sequence) error {
	q.items = make([]item, min(q.left, 256)) // so that the batches of many runs take little memory
	q.left -= len(q.items)
	text := s.buffer[:0]
	for i := range q.items {
		from := len(text)
		text = slices.Grow(text, 8)[:from+8]
		if _, err := io.ReadFull(q.r, text[from:]); err != nil {
			return onDisk(err)
		}
		at := int64(binary.LittleEndian.Uint64(text[from:]))
		n, err := binary.ReadUvarint(q.r)
		if err != nil {
			return onDisk(err)
		}
		text = slices.Grow(text[:from], int(n))[:from+int(n)]
		if _, err := io.ReadFull(q.r, text[from:]); err != nil {
			return onDisk(err)
		}
		q.items[i] = item{at, uint32(from), uint32(len(text))}
	}
	s.buffer, q.text = text, string(text)
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
