package spop

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Kinds of frames (SPOE 2.0, section 3.2).
const (
	frameUnset             = 0 // a later part of a fragmented frame
	frameHAProxyHello      = 1
	frameHAProxyDisconnect = 2
	frameNotify            = 3
	frameAgentHello        = 101
	frameAgentDisconnect   = 102
	frameAck               = 103
)

// Flags of frames.
const (
	flagFin   uint32 = 1 // the frame is whole
	flagAbort uint32 = 2 // HAProxy no longer wants an answer to this frame
)

// Sizes in bytes. HAProxy's own max-frame-size is tune.bufsize - 4, 16380 by default.
const (
	lengthSize = 4 // of a frame's length field, which does not count itself
	minFrame   = 256
	maxFrame   = 64 << 10
	maxHello   = 4 << 10 // maximum of the first frame, which any peer may send
)

// A code says why a connection ends (section 3.5).
type code uint32

const (
	codeNormal    code = 0
	codeTimeout   code = 2
	codeTooBig    code = 3
	codeInvalid   code = 4
	codeVersion   code = 8
	codeFrameSize code = 9
	codeFragments code = 10
	codeUnknown   code = 99
)

// A protocolError ends a connection. The agent sends it to the peer.
type protocolError struct {
	code code
	text string
}

func (e *protocolError) Error() string { return fmt.Sprintf("%s (SPOP status %d)", e.text, e.code) }

var errTruncated = &protocolError{codeInvalid, "a frame ends too early"}

// A frame is one frame. Its payload is valid until the next one is read.
type frame struct {
	kind       byte
	flags      uint32
	stream, id uint64
	payload    []byte
}

// parseFrame parses a whole frame, without its length field. The error is a protocolError.
func parseFrame(b []byte) (f frame, err error) {
	r := &reader{rest: b}
	if head := r.take(5); head != nil {
		f.kind, f.flags = head[0], binary.BigEndian.Uint32(head[1:])
	}
	f.stream, f.id = r.varint(), r.varint()
	f.payload = r.rest
	return f, r.err
}

// appendFrame appends a frame. fill appends its payload.
func appendFrame(dst []byte, kind byte, stream, id uint64, fill func([]byte) []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, kind)
	dst = binary.BigEndian.AppendUint32(dst, flagFin)
	dst = appendVarint(appendVarint(dst, stream), id)
	dst = fill(dst)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-lengthSize))
	return dst
}

// A reader reads a payload. After the first error, rest is empty, and all methods return zero values.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(err error) { r.rest, r.err = nil, cmp.Or(r.err, err) }

// varint reads a number: one byte if it is below 240, else 4 bits in the first byte and 7 in each following one.
func (r *reader) varint() uint64 {
	v := uint64(r.byte())
	if v < 240 {
		return v
	}
	for i, b := range r.rest {
		shift := 4 + 7*i
		if shift >= 64 {
			break
		}
		v += uint64(b) << shift
		if b < 128 {
			r.rest = r.rest[i+1:]
			return v
		}
	}
	r.fail(&protocolError{codeInvalid, "a number is invalid"})
	return 0
}

func appendVarint(dst []byte, v uint64) []byte {
	if v < 240 {
		return append(dst, byte(v))
	}
	dst = append(dst, byte(v)|240)
	v = (v - 240) >> 4
	for v >= 128 {
		dst = append(dst, byte(v)|128)
		v = (v - 128) >> 7
	}
	return append(dst, byte(v))
}

// take reads n bytes.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail(errTruncated)
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// bytes reads a length and then that many bytes.
func (r *reader) bytes() []byte { return r.take(r.varint()) }

func appendString(dst []byte, s string) []byte {
	return append(appendVarint(dst, uint64(len(s))), s...)
}

func appendText(dst []byte, name, value string) []byte {
	return appendString(append(appendString(dst, name), kindString), value)
}

// appendUint appends a name with a number.
func appendUint(dst []byte, name string, value uint32) []byte {
	return appendVarint(append(appendString(dst, name), kindUint32), uint64(value))
}

// Types of values (section 3.1).
const (
	kindNull byte = iota
	kindBool
	kindInt32
	kindUint32
	kindInt64
	kindUint64
	kindIPv4
	kindIPv6
	kindString
	kindBinary
)

// flagTrue is set in the type byte of a boolean that is true.
const flagTrue = 0x10

// A Value is an argument of a message. At most one field is set. It is valid until the handler returns.
type Value struct {
	Int   uint64 // of a number; 1 for true
	Bytes []byte // of a string or of binary data
	Addr  netip.Addr
}

// value reads a typed value.
func (r *reader) value() (v Value) {
	kind := r.byte()
	switch kind & 0xf {
	case kindNull:
	case kindBool:
		v.Int = uint64(kind & flagTrue >> 4)
	case kindInt32, kindUint32, kindInt64, kindUint64:
		v.Int = r.varint()
	case kindIPv4:
		v.Addr, _ = netip.AddrFromSlice(r.take(4))
	case kindIPv6:
		v.Addr, _ = netip.AddrFromSlice(r.take(16))
	case kindString, kindBinary:
		v.Bytes = r.bytes()
	default:
		r.fail(&protocolError{codeInvalid, fmt.Sprintf("unknown value type %d", kind&0xf)})
	}
	return v
}
