package accesslog

import (
	"cmp"
	"context"
	"errors"
)

// pass reads all of the input: a goroutine reads blocks, others parse them, and the caller's goroutine sorts their
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
	r := &reader{log: l, idle: make(chan *worker, l.o.Workers), blocks: make(chan *block, l.o.Workers+2)}
	for range l.o.Workers {
		w := &worker{entries: o.entries != nil}
		w.record.need, w.record.clock.location = need, l.o.Location
		r.idle <- w
	}
	go r.run(ctx)
	defer func() {
		cancel()
		if l.again() { // else the reader may be blocked on a silent sender; it ends when the read returns
			for range r.blocks {
			}
		}
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
	}
}

// A reader reads the input and cuts it into blocks.
type reader struct {
	log    *Log
	idle   chan *worker
	blocks chan *block // in input order
}

// parsed waits until the next block is parsed and returns it, or nil after the last.
func (r *reader) parsed(ctx context.Context) (*block, error) {
	select {
	case b := <-r.blocks:
		if b != nil && b.done != nil {
			<-b.done
		}
		return b, ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *reader) run(ctx context.Context) {
	defer close(r.blocks)
	for i, s := range r.log.sources {
		f, err := s.take()
		if err == nil {
			err = cmp.Or(r.file(ctx, i, f), f.Close())
		}
		if err != nil || ctx.Err() != nil {
			r.send(ctx, &block{file: i, err: err})
			return
		}
	}
}

// file sends the blocks of a file.
func (r *reader) file(ctx context.Context, i int, f *file) error {
	s := r.log.sources[i]
	c := &cutter{text: f}
	layout := s.layout
	for !c.end {
		var w *worker
		select {
		case w = <-r.idle:
		case <-ctx.Done():
			return nil
		}
		err := c.fill(w, r.log.o.block)
		b := &block{file: i, layout: layout, brokenOff: s.brokenOff(err), done: make(chan struct{})}
		if c, ok := layout.(*columns); ok {
			layout = c.after(w.lines)
		}
		go func() {
			w.parse(b)
			close(b.done)
			r.idle <- w
		}()
		r.send(ctx, b)
		if err != nil && !b.brokenOff {
			return s.failed(err)
		}
	}
	return nil
}

func (r *reader) send(ctx context.Context, b *block) {
	select {
	case r.blocks <- b:
	case <-ctx.Done():
	}
}
