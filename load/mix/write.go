package mix

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// A Format is how requests are written, one in a line.
type Format uint8

const (
	// Trace is the Unix time in seconds, a tab, and the number of the client. Clients
	// are numbered from 0 in the order in which they first appear.
	Trace Format = iota

	// Combined is the combined log format of Apache and nginx. It has whole seconds and
	// no hosts.
	Combined

	// JSON is an object with the keys time, remote_addr, request_method, host,
	// request_uri, status, body_bytes_sent and http_user_agent, the time as RFC 3339
	// has it, in microseconds.
	JSON
)

var formatNames = [...]string{Trace: "trace", Combined: "combined", JSON: "json"}

// FormatNames returns the names of the formats, the default first.
func FormatNames() []string { return formatNames[:] }

// ParseFormat returns the format of a name.
func ParseFormat(name string) (Format, error) {
	for f, s := range formatNames {
		if s == name {
			return Format(f), nil
		}
	}
	return 0, fmt.Errorf("mix: unknown format %s: %s", quote(name), didYouMean(name, FormatNames()))
}

// WriteOptions says how a mix is written. The zero value writes a trace.
type WriteOptions struct {
	Format Format

	// Fraction writes the times of a trace with six decimals.
	Fraction bool

	// Progress, if not nil, is called a few times for every MiB with how many requests are
	// written, and which share of the traffic they are, from 0 to 1.
	Progress func(requests uint64, share float64)
}

const (
	bufferSize = 256 << 10
	maxLine    = 8 << 10 // bytes of a line, more than a path, a host and an agent have
)

// Write writes the requests of m to w, in the order of time, and returns how many it has
// written. For a trace it needs 8 bytes for each client that may come again.
func Write(w io.Writer, m *Mix, o WriteOptions) (requests uint64, err error) {
	e := &encoder{source: m.Source(), fraction: o.Fraction, buf: make([]byte, 0, bufferSize)}
	line := e.trace
	switch o.Format {
	case Trace:
		e.numbers = make([]uint64, m.returning())
	case Combined:
		line = e.combined
	case JSON:
		line = e.json
	default:
		panic("mix: unknown format")
	}
	for {
		l := e.source.step()
		if l != nil {
			line(l)
			requests++
		}
		if l == nil || len(e.buf) > bufferSize-maxLine {
			if _, err := w.Write(e.buf); err != nil {
				return requests, err
			}
			e.buf = e.buf[:0]
			if o.Progress != nil {
				o.Progress(requests, m.share(l, requests))
			}
		}
		if l == nil {
			return requests, nil
		}
	}
}

// share returns which share of the traffic is made when l has the last request of so many.
func (m *Mix) share(l *lane, requests uint64) float64 {
	if l == nil {
		return 1
	}
	share := float64(l.time-m.start) / float64(m.duration.Microseconds())
	if m.Requests > 0 {
		share = max(share, float64(requests)/float64(m.Requests))
	}
	return share
}

// An encoder writes lines into its buffer.
type encoder struct {
	source   *Source
	buf      []byte
	fraction bool

	second int64  // since the epoch, of stamp
	stamp  []byte // how that second is written

	numbers []uint64 // of clients that may come again, plus 1; 0 where none is given
	last    uint64   // number given, plus 1
}

// at appends the time of a request, of which layout is the part to the second.
func (e *encoder) at(t int64, layout func([]byte, int64) []byte) {
	if second := t / 1e6; second != e.second || len(e.stamp) == 0 {
		e.second = second
		e.stamp = layout(e.stamp[:0], second)
	}
	e.buf = append(e.buf, e.stamp...)
}

// micros appends what of t is behind the second.
func (e *encoder) micros(t int64) {
	rest := t % 1e6
	var digits [7]byte
	for i := 6; i > 0; i-- {
		digits[i] = byte('0' + rest%10)
		rest /= 10
	}
	digits[0] = '.'
	e.buf = append(e.buf, digits[:]...)
}

func (e *encoder) trace(l *lane) {
	e.at(l.time, appendUnix)
	if e.fraction {
		e.micros(l.time)
	}
	e.buf = append(e.buf, '\t')
	client := l.of.First + l.head.client
	number := e.last
	if client < uint64(len(e.numbers)) {
		if e.numbers[client] == 0 {
			e.last++
			e.numbers[client] = e.last
		}
		number = e.numbers[client] - 1
	} else {
		e.last++
	}
	e.buf = append(strconv.AppendUint(e.buf, number, 10), '\n')
}

func appendUnix(b []byte, second int64) []byte { return strconv.AppendInt(b, second, 10) }

func appendCommon(b []byte, second int64) []byte {
	return time.Unix(second, 0).UTC().AppendFormat(b, "[02/Jan/2006:15:04:05 -0700]")
}

func (e *encoder) combined(l *lane) {
	k, c := l.choose()
	e.buf = l.of.block.addr(l.head.client).AppendTo(e.buf)
	e.buf = append(e.buf, " - - "...)
	e.at(l.time, appendCommon)
	e.buf = append(e.buf, ` "`...)
	e.buf = append(e.buf, k.methods[c.method]...)
	e.buf = append(e.buf, ' ')
	e.buf = append(e.buf, k.paths[c.path]...)
	e.buf = append(e.buf, ` HTTP/1.1" `...)
	e.buf = strconv.AppendInt(e.buf, int64(k.status), 10)
	e.buf = append(e.buf, ' ')
	e.buf = strconv.AppendUint(e.buf, k.sizes[c.path], 10)
	e.buf = append(e.buf, ` "-" "`...)
	e.buf = append(e.buf, l.of.agents[c.agent]...)
	e.buf = append(e.buf, "\"\n"...)
}

func appendRFC3339(b []byte, second int64) []byte {
	return time.Unix(second, 0).UTC().AppendFormat(b, "2006-01-02T15:04:05")
}

// json needs to escape nothing: files have no quotes, backslashes or control characters
// where a mix is read from.
func (e *encoder) json(l *lane) {
	k, c := l.choose()
	e.buf = append(e.buf, `{"time":"`...)
	e.at(l.time, appendRFC3339)
	e.micros(l.time)
	e.buf = append(e.buf, `Z","remote_addr":"`...)
	e.buf = l.of.block.addr(l.head.client).AppendTo(e.buf)
	e.buf = append(e.buf, `","request_method":"`...)
	e.buf = append(e.buf, k.methods[c.method]...)
	e.buf = append(e.buf, `","host":"`...)
	e.buf = append(e.buf, k.hosts[c.host]...)
	e.buf = append(e.buf, `","request_uri":"`...)
	e.buf = append(e.buf, k.paths[c.path]...)
	e.buf = append(e.buf, `","status":`...)
	e.buf = strconv.AppendInt(e.buf, int64(k.status), 10)
	e.buf = append(e.buf, `,"body_bytes_sent":`...)
	e.buf = strconv.AppendUint(e.buf, k.sizes[c.path], 10)
	e.buf = append(e.buf, `,"http_user_agent":"`...)
	e.buf = append(e.buf, l.of.agents[c.agent]...)
	e.buf = append(e.buf, "\"}\n"...)
}
