package accesslog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
)

// pass reads all of the input.
func (l *Log) pass(ctx context.Context, need Fields, out *output) error {
	if l.passes++; l.passes > 1 && !l.again() {
		return errors.New("accesslog: the input can only be read once")
	}
	err := l.run(ctx, need, out)
	if late := new(OrderError); errors.As(err, &late) {
		late.Again = l.again()
	}
	return err
}

// run reads all of the input: one goroutine reads blocks, workers parse them, and the caller's
// goroutine sorts their entries and passes them on.
func (l *Log) run(ctx context.Context, need Fields, out *output) (err error) {
	l.read.Store(0)
	l.stats = Stats{Files: make([]FileStats, len(l.sources))}
	for i, s := range l.sources {
		l.stats.Files[i] = FileStats{Name: s.name, Format: s.format, Compression: s.compression, Proxied: s.proxied, Pattern: s.pattern}
	}
	free := batches{make(chan []Arrival, l.o.Buffer/batchSize+64)}
	out.held, out.last = map[uint64]*records{}, nil
	o := &sorter{batches: free, ctx: ctx, out: out, limit: l.o.Buffer, disk: l.o.Sort == SortDisk, dir: l.o.TempDir}
	defer func() { err = cmp.Or(err, o.close()) }()

	ctx, cancel := context.WithCancel(ctx)
	n := 2*l.o.Workers + 2
	r := &reader{
		log:   l,
		free:  make(chan *block, n),
		work:  make(chan *block, n),
		order: make(chan *block, n),
	}
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
		w := &worker{entries: out.entries != nil, need: need, maxLine: l.o.MaxLine, keep: l.o.Samples, free: free}
		w.record.clock.location = l.o.Location
		working.Go(func() {
			for b := range r.work {
				if ctx.Err() == nil {
					b.parse(w)
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
		if err := l.take(b, o); err != nil {
			return err
		}
		r.free <- b
	}
}

// take updates the statistics from b and adds its arrivals to o.
func (l *Log) take(b *block, o *sorter) error {
	if l.stats.Entries > 0 && len(b.arrivals) > 0 && b.first < l.previous {
		b.steps++
	}
	l.stats.count(b, l.o.Samples)
	if len(b.arrivals) > 0 {
		l.previous = b.last
		o.out.take(b.number, b.records, len(b.arrivals))
		if err := o.add(b.arrivals); err != nil {
			if late := new(OrderError); errors.As(err, &late) && late.File == "" {
				late.File = l.sources[b.file].name
			}
			return err
		}
		b.arrivals = nil
	}
	return b.err
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
	log    *Log
	free   chan *block // to be filled
	work   chan *block // to be parsed
	order  chan *block // the same blocks, in input order
	number uint64
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
			err = r.file(ctx, i, s, f)
			err = cmp.Or(err, f.Close())
		}
		if err != nil {
			if b := r.next(ctx); b != nil {
				b.text, b.long, b.err = b.text[:0], 0, err
				r.send(b, i, s.layout)
			}
			return
		}
	}
}

func (r *reader) file(ctx context.Context, i int, s *source, f *file) error {
	c := &cutter{text: f, maxLine: r.log.o.MaxLine}
	layout := s.layout
	if p, prefixed := layout.(prefixed); prefixed {
		c.parts = p.parts
	}
	for first := true; ; first = false {
		b := r.next(ctx)
		if b == nil {
			return nil
		}
		more, err := c.fill(b, r.log.o.block)
		if first {
			b.text = bytes.TrimPrefix(b.text, byteOrderMark)
		}
		if d, ok := layout.(directed); ok {
			if b, layout = r.direct(ctx, b, i, d); b == nil {
				return nil
			}
		}
		b.torn = !more && f.torn
		r.send(b, i, layout)
		if err != nil {
			return s.failed(err)
		}
		if !more {
			return nil
		}
	}
}

// direct splits b at each line that changes the layout, and sends all but the last part, each
// with its layout. It returns the last part and its layout, or nil if ctx is done.
func (r *reader) direct(ctx context.Context, b *block, file int, l directed) (*block, layout) {
	for at := 0; ; {
		if at == len(b.text) || b.text[at] != '#' {
			next := bytes.Index(b.text[at:], []byte("\n#"))
			if next < 0 {
				return b, l
			}
			at += next + 1
		}
		end := bytes.IndexByte(b.text[at:], '\n')
		if end < 0 {
			end = len(b.text) - at
		}
		line := bytes.TrimSuffix(b.text[at:at+end], []byte("\r"))
		if next := l.direct(line).(directed); next != l {
			rest := r.next(ctx)
			if rest == nil {
				return nil, nil
			}
			// The line itself belongs to the next block.
			rest.buffer = append(rest.buffer[:0], b.text[at:]...)
			rest.text, rest.long = rest.buffer, 0
			b.text = b.text[:at]
			r.send(b, file, l)
			b, l, at = rest, next, 0
			end = min(end, len(b.text))
		}
		if at += end + 1; at > len(b.text) {
			return b, l
		}
	}
}

// next returns a block to be filled, or nil if ctx is done.
func (r *reader) next(ctx context.Context) *block {
	select {
	case b := <-r.free:
		b.torn = false
		return b
	case <-ctx.Done():
		return nil
	}
}

func (r *reader) send(b *block, file int, l layout) {
	b.file, b.layout, b.number = file, l, r.number
	r.number++
	r.work <- b
	r.order <- b
}
