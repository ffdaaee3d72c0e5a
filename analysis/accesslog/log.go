package accesslog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// Options say how a Log is read. The zero value of every field is usable.
type Options struct {
	// Format is the name of one of Formats, or describes one, as the package
	// documentation says. If empty, each file's is found out from its first lines.
	Format string

	// Location is where the clocks of a format without time zones stood. If nil, UTC.
	// Of the two meanings of a time that a clock shows twice when daylight saving ends,
	// the earlier is taken; a time that it skips is read with the offset before.
	Location *time.Location

	// Need are the fields of an Entry that are asked for. If zero, all.
	Need Fields

	// Workers parse lines. If zero, GOMAXPROCS. The result does not depend on it.
	Workers int

	// Buffer is how many entries are held back to put them in order. If zero, a million,
	// which take 24 MB as arrivals, and as entries their needed fields beside.
	Buffer int

	// Sort says what to do about entries that come later than that. See Sort.
	Sort Sort

	// TempDir is where entries are sorted on disk. If empty, os.TempDir.
	TempDir string

	// MaxLine is how long a line may be, in bytes. If zero, 1 MiB.
	MaxLine int

	// Samples is how many malformed lines are kept. If zero, 5.
	Samples int

	block int // bytes of a block; if zero, 256 KiB
}

// Sort says how entries are put in order.
type Sort int

const (
	// SortMemory holds Options.Buffer entries back, and fails with an OrderError if one
	// comes even later.
	SortMemory Sort = iota
	// SortDisk sorts everything before it hands out anything, on disk if there are more
	// than Options.Buffer entries. It needs 24 bytes of disk for an entry, and if not only
	// arrivals are asked for, the size of its needed fields.
	SortDisk
)

func (o Options) withDefaults() (Options, error) {
	if o.Workers < 0 || o.Buffer < 0 || o.MaxLine < 0 || o.Samples < 0 {
		return o, errors.New("accesslog: a negative option")
	}
	if o.Sort < SortMemory || o.Sort > SortDisk {
		return o, fmt.Errorf("accesslog: unknown sort %d", o.Sort)
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	o.Need = cmp.Or(o.Need, All)
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.Buffer = cmp.Or(o.Buffer, 1_000_000)
	o.MaxLine = cmp.Or(o.MaxLine, 1<<20)
	o.Samples = cmp.Or(o.Samples, 5)
	o.block = cmp.Or(o.block, 256<<10)
	return o, nil
}

// An OrderError says that an entry came so late that older ones were handed out before.
type OrderError struct {
	File   string
	By     time.Duration // how much older it is than the newest that was handed out
	Buffer int           // entries that were held back
	Again  bool          // whether the input can be read again
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("accesslog: %s: an entry is %v older than one of more than %d entries before", e.File, e.By, e.Buffer)
}

// Hint says what to do about it.
func (e *OrderError) Hint() string {
	if e.Again {
		return "sort on disk"
	}
	return "sort on disk, or give the input as files, oldest first"
}

// A Log is one or several files that are read as one. Its methods but Progress are to be
// called one at a time.
type Log struct {
	o        Options
	sources  []*source
	read     atomic.Int64 // bytes as stored
	total    int64
	passes   int
	stats    Stats
	previous int64 // the time of the last entry in the input
}

// Open finds out what the named files are. They are named oldest first; "-" is the
// standard input. What cannot be read twice, such as a pipe, is kept open until Close.
// A file that is not an access log is refused with a RefusedError.
func Open(names []string, o Options) (*Log, error) {
	return OpenWith(names, os.Stdin, o)
}

// OpenWith is Open with stdin as the standard input.
func OpenWith(names []string, stdin io.Reader, o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Log{o: o}
	for _, name := range names {
		s := &source{name: name, log: l}
		if name == "-" {
			s.name, s.stdin = "stdin", stdin
		}
		if err := s.inspect(); err != nil {
			l.Close()
			return nil, err
		}
		l.sources = append(l.sources, s)
		l.total += s.size
	}
	return l, nil
}

// Close lets go of what Open kept open.
func (l *Log) Close() error {
	var errs []error
	for _, s := range l.sources {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// Arrivals hands out every entry's time and client, in the order of time, entries of the
// same time in that of the files and lines. A batch is valid only during the call.
//
// It returns f's error if there is one, and stops then. It can be called again if all of
// the input are regular files.
func (l *Log) Arrivals(ctx context.Context, f func([]Arrival) error) error {
	return l.pass(ctx, 0, &output{arrivals: f})
}

// Entries is Arrivals for whole entries; it fills in the fields of Options.Need. The entry is
// valid only during the call.
func (l *Log) Entries(ctx context.Context, f func(*Entry) error) error {
	return l.pass(ctx, l.o.Need, &output{entries: f})
}

// Progress returns how many bytes have been read of how many in total, as they are
// stored: compressed ones of a compressed file. The total is 0 if some of the input is no
// regular file. Progress may be called at any time.
func (l *Log) Progress() (read, total int64) {
	for _, s := range l.sources {
		if s.size == 0 && !s.regular {
			return l.read.Load(), 0
		}
	}
	return l.read.Load(), l.total
}

// again reports whether all of the input can be read again.
func (l *Log) again() bool {
	for _, s := range l.sources {
		if !s.regular {
			return false
		}
	}
	return true
}
