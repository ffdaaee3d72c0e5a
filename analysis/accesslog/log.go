package accesslog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// Options configures a Log. The zero value of every field is usable.
type Options struct {
	// Format names one of Formats or describes another, as documented for the package.
	// If empty, each file's format is detected from its first lines.
	Format string

	// Location is the time zone of times without a zone. If nil, UTC. A time that occurs
	// twice when daylight saving ends is treated as the earlier one; a time that is skipped
	// is read with the offset before the change.
	Location *time.Location

	// Need is the set of fields of an Entry that are filled in. If zero, all.
	Need Fields

	// Workers is the number of goroutines that parse lines. If zero, GOMAXPROCS.
	// The result does not depend on it.
	Workers int

	// Buffer is the number of entries held back for sorting. If zero, a million, which take 16 MB plus the size of
	// the needed fields. Arrivals needs only the client's name.
	Buffer int

	// If Disk is set, the whole log is sorted before anything is returned, on disk if it has more than Buffer
	// entries. Each entry takes 10 bytes of disk and the size of its needed fields. Without it, an entry that is
	// too late for Buffer causes an OrderError.
	Disk bool

	// TempDir is the directory for sorting on disk. If empty, os.TempDir.
	TempDir string

	block int // size of a block, in bytes; if zero, 256 KiB
}

const (
	maxLine    = 1 << 20 // bytes of a line
	maxSamples = 5       // malformed lines that are kept
)

func (o Options) withDefaults() (Options, error) {
	if o.Workers < 0 || o.Buffer < 0 {
		return o, errors.New("accesslog: Workers and Buffer must not be negative")
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	o.Need = cmp.Or(o.Need, All)
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.Buffer = cmp.Or(o.Buffer, 1_000_000)
	o.block = cmp.Or(o.block, 256<<10)
	return o, nil
}

// An OrderError reports an entry that came after newer ones had been returned.
type OrderError struct {
	File   string
	By     time.Duration // how much older it is than the newest entry returned
	Buffer int           // number of entries held back
	Again  bool          // whether the input can be read again
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("accesslog: %s: an entry is %v older than another that is more than %d entries before it", e.File, e.By, e.Buffer)
}

// A Log is one or more files that are read as one. Except for Progress, its methods must not
// be called concurrently.
type Log struct {
	o       Options
	sources []*source
	read    atomic.Int64 // bytes, as stored
	total   int64
	stats   Stats
}

// Open opens the named files, oldest first, and detects their formats. "-" is stdin. Files that
// cannot be read twice, such as pipes, stay open until Close. Open returns a RefusedError if a file
// is not an access log.
func Open(names []string, stdin io.Reader, o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Log{o: o}
	for _, name := range names {
		s := newSource(name, stdin, l)
		if err := s.inspect(); err != nil {
			l.Close()
			return nil, err
		}
		l.sources = append(l.sources, s)
		l.total += s.size
	}
	return l, nil
}

// Close closes the files that Open left open.
func (l *Log) Close() error {
	var errs []error
	for _, s := range l.sources {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// batchSize is the number of arrivals passed on together.
const batchSize = 1024

// Arrivals calls f with batches of the times and clients of all entries, in chronological
// order; entries with the same time are in the order of the files and lines. A batch is valid
// only during the call.
//
// If f returns an error, Arrivals stops and returns it. It can be called again if all files
// are regular.
func (l *Log) Arrivals(ctx context.Context, f func([]Arrival) error) error {
	batch := make([]Arrival, 0, batchSize)
	err := l.pass(ctx, 0, func(e *Entry) error {
		batch = append(batch, Arrival{e.Time, ClientOf(e.Client)})
		if len(batch) < batchSize {
			return nil
		}
		full := batch
		batch = batch[:0]
		return f(full)
	})
	if err == nil && len(batch) > 0 {
		err = f(batch)
	}
	return err
}

// Entries is like Arrivals for whole entries. It fills in the fields of Options.Need. The entry
// is valid only during the call.
func (l *Log) Entries(ctx context.Context, f func(*Entry) error) error {
	return l.pass(ctx, l.o.Need, f)
}

// Progress returns the number of bytes read so far and in total, as stored: for a compressed
// file, compressed bytes. The total is 0 if not all files are regular. Progress is safe for
// concurrent use.
func (l *Log) Progress() (read, total int64) {
	if !l.Again() {
		return l.read.Load(), 0
	}
	return l.read.Load(), l.total
}

// Again reports whether all files can be read again.
func (l *Log) Again() bool {
	return !slices.ContainsFunc(l.sources, func(s *source) bool { return !s.regular })
}
