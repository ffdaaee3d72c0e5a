package accesslog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// headSize is how much of a file's text is looked at to find out its format.
const headSize = 256 << 10

// A source is one of a log's files.
type source struct {
	name        string
	stdin       io.Reader // of "-"
	log         *Log
	regular     bool  // it can be read again
	size        int64 // as stored, if regular
	compression string
	format      string
	layout      layout
	proxied     bool   // the client is a proxy
	pattern     string // that reads the clients then

	// Of what cannot be opened again: what Open opened, and the text at its beginning.
	held *file
	head []byte
}

// A file is an open source.
type file struct {
	text        io.Reader
	regular     bool
	size        int64
	compression string
	torn        bool // what is compressed turned out to end early
	closers     []func() error
}

func (f *file) close() error {
	var errs []error
	for i := len(f.closers) - 1; i >= 0; i-- {
		errs = append(errs, f.closers[i]())
	}
	f.closers = nil
	return errors.Join(errs...)
}

// inspect opens s, and finds out what it is.
func (s *source) inspect() error {
	f, err := s.open()
	if err != nil {
		return err
	}
	s.regular, s.size, s.compression = f.regular, f.size, f.compression
	head := make([]byte, headSize)
	n, err := readFull(f.text, head)
	head = head[:n]
	whole := errors.Is(err, io.EOF)
	if f.torn && bytes.IndexByte(head, '\n') < 0 { // not even one whole line
		err, whole = io.ErrUnexpectedEOF, false
	}
	if err != nil && !whole {
		f.close()
		return s.failed(err)
	}
	if err := s.recognise(head, whole); err != nil {
		f.close()
		return err
	}
	if s.regular {
		s.log.read.Store(0)
		return f.close()
	}
	s.held, s.head = f, head
	return nil
}

// take returns the text of s, from the start.
func (s *source) take() (*file, error) {
	if s.regular {
		return s.open()
	}
	f := s.held
	if f == nil {
		return nil, fmt.Errorf("accesslog: %s can only be read once", s.name)
	}
	s.held = nil
	f.text = io.MultiReader(bytes.NewReader(s.head), f.text)
	return f, nil
}

func (s *source) close() error {
	if s.held == nil {
		return nil
	}
	return s.held.close()
}

// open opens s, and undoes its compression.
func (s *source) open() (*file, error) {
	f := new(file)
	var stored io.Reader
	if s.stdin != nil {
		stored = s.stdin
	} else {
		opened, err := os.Open(s.name)
		if err != nil {
			return nil, fmt.Errorf("accesslog: %w", err)
		}
		f.closers = append(f.closers, opened.Close)
		info, err := opened.Stat()
		if err != nil {
			f.close()
			return nil, fmt.Errorf("accesslog: %w", err)
		}
		if info.IsDir() {
			f.close()
			return nil, fmt.Errorf("accesslog: %s is a directory", s.name)
		}
		if f.regular = info.Mode().IsRegular(); f.regular {
			f.size = info.Size()
		}
		stored = opened
	}
	counted := bufio.NewReaderSize(&counter{stored, &s.log.read}, 64<<10)
	magic, err := counted.Peek(16)
	if err != nil && !errors.Is(err, io.EOF) {
		f.close()
		return nil, s.failed(err)
	}
	if err := f.decompress(counted, magic); err != nil {
		f.close()
		return nil, s.failed(err)
	}
	return f, nil
}

// decompress finds out by its first bytes how what is stored is compressed.
func (f *file) decompress(stored *bufio.Reader, magic []byte) error {
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		f.compression = "gzip"
		z, err := gzip.NewReader(stored)
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		f.text, f.closers = z, append(f.closers, func() error { z.Close(); return nil }) // its error is Read's
	case bytes.HasPrefix(magic, []byte("\x28\xb5\x2f\xfd")),
		len(magic) > 4 && magic[0]&0xf0 == 0x50 && bytes.HasPrefix(magic[1:], []byte("\x2a\x4d\x18")):
		f.compression = "zstd"
		z, err := zstd.NewReader(stored)
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
		f.text, f.closers = z, append(f.closers, func() error { z.Close(); return nil })
	case len(magic) >= 10 && bytes.HasPrefix(magic, []byte("BZh")) && string(magic[4:10]) == "1AY&SY":
		f.compression = "bzip2"
		f.text = bzip2.NewReader(stored)
	default:
		f.text = stored
		return nil
	}
	f.text = &untilTorn{f.text, &f.torn}
	return nil
}

// failed wraps an error of reading s.
func (s *source) failed(err error) error {
	if s.compression != "" {
		return fmt.Errorf("accesslog: reading %s (%s): %w", s.name, s.compression, err)
	}
	return fmt.Errorf("accesslog: reading %s: %w", s.name, err)
}

// An untilTorn ends where what is compressed ends early, such as in a file that is still
// being written, and notes that it did.
type untilTorn struct {
	io.Reader
	torn *bool
}

func (u *untilTorn) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		*u.torn, err = true, io.EOF
	}
	return n, err
}

// A counter counts what is read.
type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// OpenText opens a file, or stdin for "-", and undoes its compression.
func OpenText(name string, stdin io.Reader) (io.ReadCloser, error) {
	s := &source{name: name, log: new(Log)}
	if name == "-" {
		s.stdin = stdin
	}
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	return openText{f.text, f}, nil
}

type openText struct {
	io.Reader
	file *file
}

func (t openText) Close() error { return t.file.close() }
