package accesslog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// headSize is the number of bytes of a file's text used to detect its format.
const headSize = 256 << 10

// A source is one of a log's files.
type source struct {
	FileStats           // without counts
	stdin     io.Reader // for "-"
	log       *Log
	regular   bool  // can be read again
	size      int64 // as stored, if regular
	layout    layout

	held *file // if the source is not regular: the file that Open opened
}

// A file is an open source, whose Reader returns decompressed text.
type file struct {
	io.Reader
	stored      *os.File      // nil for the standard input
	zstd        *zstd.Decoder // nil unless compressed by zstd
	regular     bool
	size        int64
	compression string
}

func (f *file) Close() error {
	if f.zstd != nil {
		f.zstd.Close()
	}
	if f.stored == nil {
		return nil
	}
	return f.stored.Close()
}

// inspect opens s and detects its compression and format.
func (s *source) inspect() error {
	f, err := s.open()
	if err != nil {
		return err
	}
	s.regular, s.size, s.Compression = f.regular, f.size, f.compression
	head := make([]byte, headSize)
	n, err := readFull(f, head)
	head = head[:n]
	whole := errors.Is(err, io.EOF) || s.brokenOff(err)
	if err != nil && !whole {
		f.Close()
		return s.failed(err)
	}
	if err := s.recognize(head, whole); err != nil {
		f.Close()
		return err
	}
	if s.regular {
		s.log.read.Store(0)
		return f.Close()
	}
	f.Reader = io.MultiReader(bytes.NewReader(head), f.Reader)
	s.held = f
	return nil
}

// take returns the text of s from its beginning.
func (s *source) take() (*file, error) {
	if s.regular {
		return s.open()
	}
	f := s.held
	if f == nil {
		return nil, fmt.Errorf("accesslog: %s can only be read once", s.Name)
	}
	s.held = nil
	return f, nil
}

func (s *source) close() error {
	if s.held == nil {
		return nil
	}
	return s.held.Close()
}

// open opens s for reading its decompressed text. If open returns an error, the file is closed.
func (s *source) open() (f *file, err error) {
	f = new(file)
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	stored := s.stdin
	if stored == nil {
		if f.stored, err = os.Open(s.Name); err != nil {
			return f, fmt.Errorf("accesslog: %w", err)
		}
		stored = f.stored
		info, err := f.stored.Stat()
		switch {
		case err != nil:
			return f, fmt.Errorf("accesslog: %w", err)
		case info.IsDir():
			return f, fmt.Errorf("accesslog: %s is a directory", s.Name)
		case info.Mode().IsRegular():
			f.regular, f.size = true, info.Size()
		}
	}
	if s.size > 0 { // later passes read the same text, even if the log has grown since
		stored = io.LimitReader(stored, s.size)
	}
	counted := bufio.NewReaderSize(&counter{stored, &s.log.read}, 64<<10)
	magic, err := counted.Peek(16)
	if err != nil && !errors.Is(err, io.EOF) {
		return f, s.failed(err)
	}
	if err := f.decompress(counted, magic); err != nil {
		return f, s.failed(err)
	}
	return f, nil
}

// decompress sets f.Reader to a reader of the decompressed data in stored. It detects the compression from magic, the
// first bytes.
func (f *file) decompress(stored *bufio.Reader, magic []byte) (err error) {
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		f.compression = "gzip"
		z := &members{stored: stored}
		z.Reader, err = gzip.NewReader(stored)
		f.Reader = z
	case bytes.HasPrefix(magic, []byte("\x28\xb5\x2f\xfd")),
		len(magic) > 4 && magic[0]&0xf0 == 0x50 && bytes.HasPrefix(magic[1:], []byte("\x2a\x4d\x18")):
		f.compression = "zstd"
		f.zstd, err = zstd.NewReader(stored)
		f.Reader = f.zstd
	case len(magic) >= 10 && bytes.HasPrefix(magic, []byte("BZh")) && string(magic[4:10]) == "1AY&SY":
		f.compression = "bzip2"
		f.Reader = bzip2.NewReader(stored)
	default:
		f.Reader = stored
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.compression, err)
	}
	f.Reader = withoutNULs{f.Reader}
	return nil
}

// members reads the members of a file compressed by gzip, and skips zeros after them, which some programs append.
type members struct {
	*gzip.Reader
	stored *bufio.Reader
}

func (m *members) Read(b []byte) (int, error) {
	m.Multistream(false)
	n, err := m.Reader.Read(b)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	for {
		next, err := m.stored.Peek(1)
		if err != nil {
			return n, err
		}
		if next[0] != 0 {
			if m.Reset(m.stored) != nil { // something else was appended
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
		m.stored.Discard(1)
	}
}

// withoutNULs removes NULs from text. After logrotate's copytruncate, a file begins with NULs, up to the offset at
// which the server continues to write.
type withoutNULs struct{ io.Reader }

func (r withoutNULs) Read(b []byte) (n int, err error) {
	for n == 0 && err == nil && len(b) > 0 {
		if n, err = r.Reader.Read(b); bytes.IndexByte(b[:n], 0) >= 0 {
			n = len(slices.DeleteFunc(b[:n], func(c byte) bool { return c == 0 }))
		}
	}
	return n, err
}

// brokenOff reports whether err means that s is a truncated compressed file. The text before the end is still read.
func (s *source) brokenOff(err error) bool {
	return s.Compression != "" && errors.Is(err, io.ErrUnexpectedEOF)
}

// failed wraps an error from reading s.
func (s *source) failed(err error) error {
	if s.Compression != "" {
		return fmt.Errorf("accesslog: reading %s (%s): %w", s.Name, s.Compression, err)
	}
	return fmt.Errorf("accesslog: reading %s: %w", s.Name, err)
}

// A counter counts the bytes read.
type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// newSource returns the source with the given name; "-" is stdin.
func newSource(name string, stdin io.Reader, l *Log) *source {
	if name == "-" {
		return &source{FileStats: FileStats{Name: "stdin"}, stdin: stdin, log: l}
	}
	return &source{FileStats: FileStats{Name: name}, log: l}
}

// OpenText opens the named file, or stdin for "-". Reading from it returns decompressed text.
func OpenText(name string, stdin io.Reader) (io.ReadCloser, error) {
	return newSource(name, stdin, new(Log)).open()
}
