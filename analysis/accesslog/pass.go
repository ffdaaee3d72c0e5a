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
	idle := make(chan *worker, l.o.Workers)
	blocks := make(chan *block, l.o.Workers+2) // in input order
	for range l.o.Workers {
		w := &worker{entries: o.entries != nil}
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
		if len(b.arrivals) > 0 {
			if err := o.add(b.batch); err != nil {
				if late := new(OrderError); errors.As(err, &late) {
					late.File, late.Again = l.sources[b.file].name, l.Again()
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
