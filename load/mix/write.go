package mix

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

// A Format is a log format with one request per line.
type Format uint8

const (
	// Trace is the Unix time in seconds, a tab, and the number of the client. Clients
	// are numbered from 0 in order of first appearance.
	Trace Format = iota

	// Combined is the combined log format of Apache and nginx. It has a resolution of one
	// second and no hosts.
	Combined

	// JSON is an object with the keys time, remote_addr, request_method, host,
	// request_uri, status, body_bytes_sent and http_user_agent. The time is in RFC 3339
	// format, with microseconds.
	JSON
)

var formatNames = [...]string{Trace: "trace", Combined: "combined", JSON: "json"}

// lines append the line of a request, by format.
var lines = [...]func(*encoder, []byte, *flow) []byte{
	Trace: (*encoder).trace, Combined: (*encoder).combined, JSON: (*encoder).json,
}

// FormatNames returns the names of the formats, the default first.
func FormatNames() []string { return formatNames[:] }

// ParseFormat returns the format called name.
func ParseFormat(name string) (Format, error) {
	if f := slices.Index(formatNames[:], name); f >= 0 {
		return Format(f), nil
	}
	return 0, fmt.Errorf("mix: unknown format %s: %s", prose.Quote(name), prose.Suggest(name, FormatNames()))
}

const (
	bufferSize = 256 << 10
	maxLine    = 8 << 10 // in bytes; more than a path, a host and an agent together
)

// Write writes the requests of m to w in the given format, in order of time, and returns their count. A trace needs 4
// bytes of memory for each client that may return. Write returns an error before a trace reaches
// 2³² clients.
func Write(w io.Writer, m *Mix, format Format) (requests uint64, err error) {
	e := new(encoder)
	if format == Trace {
		e.numbers = make([]uint32, m.returning())
	}
	s, b := m.Source(), make([]byte, 0, bufferSize)
	for {
		l := s.step()
		if l != nil {
			b = lines[format](e, b, l)
			requests++
		}
		if l == nil || len(b) > bufferSize-maxLine {
			if _, err := w.Write(b); err != nil {
				return requests, err
			}
			if e.full {
				return requests, errors.New("mix: too many clients for a trace")
			}
			b = b[:0]
		}
		if l == nil {
			return requests, nil
		}
	}
}

// An encoder appends lines to a buffer.
type encoder struct {
	request Request

	second int64  // time of stamp since the epoch
	stamp  []byte // the second in its written form

	numbers []uint32 // of the clients that may return, plus 1; 0 if not assigned
	last    uint32   // last assigned number, plus 1
	full    bool     // the numbers suffice for this buffer, but not for another
}

// time appends the second of t in a layout or, if that is empty, in seconds since the epoch.
func (e *encoder) time(b []byte, t int64, layout string) []byte {
	if second := t / 1e6; second != e.second || len(e.stamp) == 0 {
		e.second = second
		if layout == "" {
			e.stamp = strconv.AppendInt(e.stamp[:0], second, 10)
		} else {
			e.stamp = time.Unix(second, 0).UTC().AppendFormat(e.stamp[:0], layout)
		}
	}
	return append(b, e.stamp...)
}

// number returns the number of a client in a trace.
func (e *encoder) number(client uint64) uint32 {
	again := client < uint64(len(e.numbers))
	if again && e.numbers[client] > 0 {
		return e.numbers[client] - 1
	}
	e.last++
	e.full = e.last > 1<<32-bufferSize // a buffer has fewer lines than bytes
	if again {
		e.numbers[client] = e.last
	}
	return e.last - 1
}

func (e *encoder) trace(b []byte, l *flow) []byte {
	b = e.time(b, l.time, "")
	b = append(b, '\t')
	b = strconv.AppendUint(b, uint64(e.number(l.of.First+l.head.client)), 10)
	return append(b, '\n')
}

func (e *encoder) combined(b []byte, l *flow) []byte {
	r := &e.request
	l.request(r)
	b = l.of.block.addr(l.head.client).AppendTo(b)
	b = append(b, " - - "...)
	b = e.time(b, r.Time, "[02/Jan/2006:15:04:05 -0700]")
	b = join(b, ` "`, r.Method, " ", r.Path, ` HTTP/1.1" `)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, size(r), 10)
	return join(b, ` "-" "`, r.Agent, "\"\n")
}

// size returns the size of the answer's body in bytes, which depends only on the path.
func size(r *Request) uint64 { return 200 + hash(r.Path)%40_000 }

// join appends texts.
func join(b []byte, texts ...string) []byte {
	for _, text := range texts {
		b = append(b, text...)
	}
	return b
}

// json appends l's request. It need not escape anything: strings of a mix have no quotes, backslashes or control
// characters.
func (e *encoder) json(b []byte, l *flow) []byte {
	r := &e.request
	l.request(r)
	b = append(b, `{"time":"`...)
	b = e.time(b, r.Time, "2006-01-02T15:04:05")
	point := len(b)
	b = strconv.AppendInt(b, 1e6+r.Time%1e6, 10) // the fraction, with a leading 1
	b[point] = '.'
	b = append(b, `Z","remote_addr":"`...)
	b = l.of.block.addr(l.head.client).AppendTo(b)
	b = join(b, `","request_method":"`, r.Method, `","host":"`, r.Host, `","request_uri":"`, r.Path, `","status":`)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, `,"body_bytes_sent":`...)
	b = strconv.AppendUint(b, size(r), 10)
	return join(b, `,"http_user_agent":"`, r.Agent, "\"}\n")
}
