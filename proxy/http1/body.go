package http1

import (
	"bytes"
	"strconv"
)

// Errors in a chunked body (RFC 9112, 7.1).
var (
	errChunk    = &Error{400, "malformed chunk"}
	errTrailers = &Error{400, "malformed trailer"}
)

// A bodyReader extracts a message's body from the bytes of a connection.
type bodyReader struct {
	kind  Body
	left  uint64 // bytes that remain of a Sized body, or of the chunk
	part  part   // next part of a Chunked body
	ended bool

	// Trailers are the forwarded fields after the last chunk, as lines.
	trailers []byte

	read int // bytes of trailers, including those that are not forwarded
}

type part uint8

const (
	chunkSize part = iota
	chunkData
	chunkEnd
	trailer
)

// Maximum lengths in bytes: of a line with a chunk's size and extensions, and of all trailers.
const (
	maxChunkLine = 1 << 10
	maxTrailers  = 8 << 10
)

// next reads the first used bytes of buf. data is the part of them in the body. If used is 0, next needs more bytes.
func (b *bodyReader) next(buf []byte) (data []byte, used int, err error) {
	switch b.kind {
	case UntilClose:
		return buf, len(buf), nil
	case Sized:
		n := int(min(b.left, uint64(len(buf))))
		b.left -= uint64(n)
		b.ended = b.left == 0
		return buf[:n], n, nil
	}
	for !b.ended {
		rest := buf[used:]
		if b.part == chunkData {
			n := int(min(b.left, uint64(len(rest))))
			b.left -= uint64(n)
			if b.left == 0 {
				b.part = chunkEnd
			}
			return rest[:n], used + n, nil
		}
		line, n, err := chunkLine(rest)
		if err != nil || n == 0 {
			return nil, used, err
		}
		used += n
		if err := b.line(line); err != nil {
			return nil, used, err
		}
	}
	return nil, used, nil
}

// chunkLine returns the first line of buf without CRLF, and its length with CRLF, or 0 if the line is incomplete.
func chunkLine(buf []byte) (line []byte, n int, err error) {
	buf = buf[:min(len(buf), maxChunkLine+len("\r\n"))]
	switch i := bytes.IndexByte(buf, '\n'); {
	case i < 0 && len(buf) < maxChunkLine+len("\r\n"):
		return nil, 0, nil
	case i < 1 || buf[i-1] != '\r':
		return nil, 0, errChunk
	default:
		return buf[:i-1], i + 1, nil
	}
}

// line reads a line between the data of chunks.
func (b *bodyReader) line(line []byte) error {
	switch b.part {
	case chunkSize:
		if err := b.size(line); err != nil {
			return err
		}
		b.part = chunkData
		if b.left == 0 {
			b.part = trailer
		}
	case chunkEnd:
		if len(line) > 0 {
			return errChunk
		}
		b.part = chunkSize
	case trailer:
		if len(line) == 0 {
			b.ended = true
			return nil
		}
		b.read += len(line) + fieldSize
		var f Field
		if err := f.scan(line, 0); err != nil || b.read > maxTrailers {
			return errTrailers
		}
		if f.Name == Other { // special fields are dropped: they come too late to change how the message is read
			b.trailers = append(append(b.trailers, line...), "\r\n"...)
		}
	}
	return nil
}

// size reads the line before a chunk's data: the size in hexadecimal digits, and extensions, which it drops.
func (b *bodyReader) size(line []byte) (err error) {
	digits, extensions, _ := bytes.Cut(line, []byte(";"))
	b.left, err = strconv.ParseUint(string(bytes.TrimRight(digits, " \t")), 16, 63)
	if err != nil || len(extensions) > 0 && !all(extensions, text) {
		return errChunk
	}
	return nil
}

// appendChunk appends data, as a chunk if chunked is set.
func appendChunk(dst, data []byte, chunked bool) []byte {
	if !chunked || len(data) == 0 {
		return append(dst, data...)
	}
	dst = append(appendChunkSize(dst, len(data)), data...)
	return append(dst, "\r\n"...)
}

// sendChunk sends data, as a chunk if chunked is set.
func (w *wire) sendChunk(data []byte, chunked bool) error {
	if !chunked || len(data) == 0 {
		return w.send(data)
	}
	w.out = appendChunkSize(w.room(), len(data))
	if err := w.send(data); err != nil {
		return err
	}
	w.out = append(w.room(), "\r\n"...)
	return nil
}

// appendChunkSize begins a chunk of n bytes, which is not the last one. The caller appends the data and CRLF.
func appendChunkSize(dst []byte, n int) []byte {
	return append(strconv.AppendUint(dst, uint64(n), 16), "\r\n"...)
}

// appendLastChunk appends the end of a body, with lines of trailers.
func appendLastChunk(dst, trailers []byte) []byte {
	dst = append(append(dst, "0\r\n"...), trailers...)
	return append(dst, "\r\n"...)
}
