package mix

import (
	"bufio"
	"io"
	"strconv"
	"time"
)

// Log formats, with one request per line.
const (
	// Trace is the Unix time in seconds, a tab, and the number of the client.
	Trace = "trace"

	// Combined is the combined log format of Apache and nginx. It has a resolution of one
	// second and no hosts.
	Combined = "combined"

	// JSON is an object with the keys time, remote_addr, request_method, host,
	// request_uri, status, body_bytes_sent and http_user_agent. The time is in RFC 3339
	// format, with microseconds.
	JSON = "json"
)

// lines append the line of a request, by format.
var lines = map[string]func(*encoder, []byte, *flow) []byte{
	Trace: (*encoder).trace, Combined: (*encoder).combined, JSON: (*encoder).json,
}

// Formats returns the log formats, the default first.
func Formats() []string { return []string{Trace, Combined, JSON} }

// Write writes the requests of m to w in one of Formats, in order of time, and returns their count.
func Write(w io.Writer, m *Mix, format string) (requests uint64, err error) {
	line := lines[format]
	e, s, b := new(encoder), m.Source(), bufio.NewWriterSize(w, 256<<10)
	for l := s.step(); l != nil; l = s.step() {
		if _, err := b.Write(line(e, b.AvailableBuffer(), l)); err != nil {
			return requests, err
		}
		requests++
	}
	return requests, b.Flush()
}

// An encoder appends lines to a buffer.
type encoder struct {
	request Request

	second int64  // time of stamp since the epoch
	stamp  []byte // the second in its written form
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

func (e *encoder) trace(b []byte, l *flow) []byte {
	b = e.time(b, l.time, "")
	b = append(b, '\t')
	b = strconv.AppendUint(b, l.of.First+l.head.client, 10)
	return append(b, '\n')
}

func (e *encoder) combined(b []byte, l *flow) []byte {
	r := &e.request
	l.request(r)
	b = l.of.addr(l.head.client).AppendTo(b)
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
	b = l.of.addr(l.head.client).AppendTo(b)
	b = join(b, `","request_method":"`, r.Method, `","host":"`, r.Host, `","request_uri":"`, r.Path, `","status":`)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, `,"body_bytes_sent":`...)
	b = strconv.AppendUint(b, size(r), 10)
	return join(b, `,"http_user_agent":"`, r.Agent, "\"}\n")
}
