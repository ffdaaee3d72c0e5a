package accesslog

import (
	"bufio"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// A disk puts arrivals in order however much they are out of it: it sorts runs of limit
// arrivals, writes them to a file, and merges them at the end.
type disk struct {
	batches
	ctx   context.Context
	limit int
	hand  func([]Arrival) error // of what never was on disk
	out   carrier
	dir   string

	waiting [][]Arrival // each in order
	count   int         // of waiting
	file    *os.File
	removed bool
	w       *bufio.Writer
	size    int64
	runs    []*run
	newest  int64 // of the last run
	buffer  []byte
}

func (d *disk) add(b []Arrival) error {
	d.waiting = append(d.waiting, b)
	if d.count += len(b); d.count < d.limit {
		return nil
	}
	return d.write()
}

// write writes what waits as a run, or as more of the last one if it is newer: a run's
// arrivals come before the next run's in the input.
func (d *disk) write() error {
	sequence := d.mergeAll(d.waiting)
	d.waiting, d.count = d.waiting[:0], 0
	if len(sequence) == 0 {
		return nil
	}
	if d.file == nil {
		f, err := os.CreateTemp(d.dir, "edge-sort-*")
		if err != nil {
			return fmt.Errorf("accesslog: sorting on disk: %w", err)
		}
		d.file, d.w = f, bufio.NewWriterSize(f, 1<<20)
		// Where an open file can be removed, nothing of it is left even if the process is
		// killed.
		d.removed = os.Remove(f.Name()) == nil
	}
	if len(d.runs) == 0 || sequence[0][0].Time < d.newest {
		d.runs = append(d.runs, &run{from: d.size, to: d.size})
	}
	last := d.runs[len(d.runs)-1]
	for _, b := range sequence {
		for _, a := range b {
			d.buffer = binary.LittleEndian.AppendUint64(d.buffer[:0], uint64(a.Time))
			d.buffer = d.out.spill(d.buffer, a)
			if _, err := d.w.Write(d.buffer); err != nil {
				return fmt.Errorf("accesslog: sorting on disk: %w", err)
			}
			d.size += int64(len(d.buffer))
		}
		d.newest = b[len(b)-1].Time
		d.put(b)
	}
	last.to = d.size
	return d.ctx.Err()
}

func (d *disk) finish() error {
	if d.file == nil {
		for _, b := range d.mergeAll(d.waiting) {
			if err := d.hand(b); err != nil {
				return err
			}
		}
		return nil
	}
	if err := d.write(); err != nil {
		return err
	}
	if err := d.w.Flush(); err != nil {
		return fmt.Errorf("accesslog: sorting on disk: %w", err)
	}
	return d.merge()
}

// merge merges the runs.
func (d *disk) merge() error {
	_, entries := d.out.(*entries)
	h := make(runs, 0, len(d.runs))
	for i, r := range d.runs {
		r.number, r.entries = i, entries
		section := io.NewSectionReader(d.file, r.from, r.to-r.from)
		r.r = bufio.NewReaderSize(section, min(1<<20, max(16<<10, 64<<20/len(d.runs))))
		if err := r.next(); err != nil {
			return err
		}
		h = append(h, r)
	}
	heap.Init(&h)
	for n := 0; len(h) > 0; n++ {
		if n%batchSize == 0 && d.ctx.Err() != nil {
			return d.ctx.Err()
		}
		r := h[0]
		if err := d.out.spilled(r.time, r.record); err != nil {
			return err
		}
		switch err := r.next(); {
		case errors.Is(err, io.EOF):
			heap.Pop(&h)
		case err != nil:
			return err
		default:
			heap.Fix(&h, 0)
		}
	}
	return d.out.flush()
}

// close removes the file.
func (d *disk) close() error {
	if d.file == nil {
		return nil
	}
	err := d.file.Close()
	if !d.removed {
		err = cmp.Or(err, os.Remove(d.file.Name()))
	}
	return err
}

// A run is a part of the file that is in order.
type run struct {
	from, to int64
	number   int
	entries  bool
	r        *bufio.Reader
	time     int64
	record   []byte
}

// next reads the next arrival of the run. The error is io.EOF after the last.
func (r *run) next() error {
	var fixed [8]byte
	if _, err := io.ReadFull(r.r, fixed[:]); err != nil {
		return r.failed(err)
	}
	r.time = int64(binary.LittleEndian.Uint64(fixed[:]))
	size := uint64(len(Client{}))
	if r.entries {
		var err error
		if size, err = binary.ReadUvarint(r.r); err != nil {
			return r.failed(err)
		}
	}
	if uint64(cap(r.record)) < size {
		r.record = make([]byte, size)
	}
	r.record = r.record[:size]
	if _, err := io.ReadFull(r.r, r.record); err != nil {
		return r.failed(err)
	}
	return nil
}

func (r *run) failed(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("accesslog: sorting on disk: %w", err)
}

// runs are a heap of runs by their next arrival's time, then their place in the input.
type runs []*run

func (h runs) Len() int { return len(h) }
func (h runs) Less(i, j int) bool {
	return h[i].time < h[j].time || h[i].time == h[j].time && h[i].number < h[j].number
}
func (h runs) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runs) Push(r any)   { *h = append(*h, r.(*run)) }
func (h *runs) Pop() any {
	old := *h
	r := old[len(old)-1]
	*h = old[:len(old)-1]
	return r
}
