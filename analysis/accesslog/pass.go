package accesslog

import (
	"cmp"
	"context"
	"errors"
	"sync"
)

// pass reads all of the input: one goroutine reads blocks, workers parse them, and the caller's goroutine sorts their
// entries and passes them on.
func (l *Log) pass(ctx context.Context, need Fields, o *sorter) (err error) {
	l.read.Store(0)
	l.stats = Stats{Files: make([]FileStats, len(l.sources))}
	for i, s := range l.sources {
		l.stats.Files[i] = FileStats{Name: s.name, Format: s.format, Compression: s.compression, Proxied: s.proxied}
	}
	o.ctx, o.limit, o.disk, o.dir = ctx, l.o.Buffer, l.o.Disk, l.o.TempDir
	defer func() { err = cmp.Or(err, o.close()) }()

	ctx, cancel := context.WithCancel(ctx)
	n := 2*l.o.Workers + 2
	r := &reader{log: l, free: make(chan *block, n), work: make(chan *block, n), order: make(chan *block, n)}
	for range n {
		r.free <- &block{done: make(chan struct{}, 1)}
	}
	var working sync.WaitGroup
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.run(ctx)
	}()
	for range l.o.Workers {
		w := &worker{entries: o.entries != nil}
		w.record.need, w.record.clock.location = need, l.o.Location
		working.Go(func() {
			for b := range r.work {
				if ctx.Err() == nil {
					w.parse(b)
				}
				b.done <- struct{}{}
			}
		})
	}
	defer func() {
		cancel()
		if !l.again() {
			select {
			case <-read:
			default:
				return // the reader may be blocked on a silent sender; it ends when the read returns
			}
		}
		<-read
		working.Wait()
	}()
	for {
		b, err := r.parsed(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			return o.finish()
		}
		l.stats.count(b)
		if len(b.arrivals) > 0 {
			if err := o.add(b.batch); err != nil {
				if late := new(OrderError); errors.As(err, &late) {
					late.File, late.Again = l.sources[b.file].name, l.again()
				}
				return err
			}
		}
		if b.err != nil {
			return b.err
		}
		r.free <- b
	}
}

// parsed waits until the next block is parsed and returns it, or nil after the last.
func (r *reader) parsed(ctx context.Context) (*block, error) {
	select {
	case b := <-r.order:
		if b != nil {
			<-b.done
		}
		return b, ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A reader reads the input and cuts it into blocks.
type reader struct {
	log   *Log
	free  chan *block // to be filled
	work  chan *block // to be parsed
	order chan *block // the same blocks, in input order
}

func (r *reader) run(ctx context.Context) {
	defer close(r.work)
	defer close(r.order)
	for i, s := range r.log.sources {
		if ctx.Err() != nil {
			return
		}
		f, err := s.take()
		if err == nil {
			err = cmp.Or(r.file(ctx, i, f), f.Close())
		}
		if err != nil {
			if b := r.next(ctx); b != nil {
				b.file, b.layout, b.text, b.err = i, s.layout, b.text[:0], err
				r.send(b)
			}
			return
		}
	}
}

// file sends the blocks of a file.
func (r *reader) file(ctx context.Context, i int, f *file) error {
	s := r.log.sources[i]
	c := &cutter{text: f}
	layout := s.layout
	for {
		b := r.next(ctx)
		if b == nil {
			return nil
		}
		more, err := c.fill(b, r.log.o.block)
		b.file, b.layout, b.brokenOff = i, layout, s.brokenOff(err)
		if c, ok := layout.(*columns); ok {
			layout = c.after(b.text)
		}
		r.send(b)
		if err != nil && !b.brokenOff {
			return s.failed(err)
		}
		if !more {
			return nil
		}
	}
}

// next returns a block to be filled, or nil if ctx is done.
func (r *reader) next(ctx context.Context) *block {
	select {
	case b := <-r.free:
		return b
	case <-ctx.Done():
		return nil
	}
}

func (r *reader) send(b *block) {
	r.work <- b
	r.order <- b
}
