package load

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/load/judge"
)

var errMalformed = errors.New("load: malformed response")

// An answer holds the parts of a response that the log and the judge need.
type answer struct {
	status uint16
	retry  int32 // as judge.Answer.Retry
	quota  quota // RateLimit
	older  quota // X-RateLimit-Remaining and -Reset
	flags  flags
	last   bool   // the connection ends after it
	node   []byte // value of Options.NodeHeader; reused
	policy []byte // RateLimit-Policy; reused
}

// begin resets a for the next answer.
func (a *answer) begin(status uint16) {
	nothing := quota{-1, -1}
	*a = answer{status: status, retry: judge.NoRetry, quota: nothing, older: nothing,
		node: a.node[:0], policy: a.policy[:0]}
}

// A wire reads the responses of an HTTP/1.1 connection, one at a time.
// It parses only what it needs, and does not allocate.
type wire struct {
	*bufio.Reader
	nodeHeader []byte
	bodies     [][]byte // of the rules' responses
	body       []byte   // a body as long as one of them; reused
}

// maxHead is the maximum length of a head, and of any line, in bytes.
const maxHead = 1 << 18

// read reads the answer to a request. bodiless means that it has no body, even if its header says otherwise.
func (w *wire) read(a *answer, bodiless bool) error {
	for {
		length, chunked, err := w.head(a)
		switch {
		case err != nil:
			return err
		case a.status == 101:
			return errMalformed // it was not requested
		case a.status < 200:
			continue
		case bodiless || a.status == 204 || a.status == 304:
			return nil
		case chunked:
			return w.chunks()
		case length < 0:
			a.last = true
			_, err := w.WriteTo(io.Discard)
			return err
		case w.expects(length):
			w.body = slices.Grow(w.body[:0], int(length))[:length]
			if _, err := io.ReadFull(w, w.body); err != nil {
				return err
			}
			a.compare(w.body, w.bodies)
			return nil
		}
		_, err = w.Discard(int(length))
		return err
	}
}

// line returns the next line without its line ending. The line is valid until the next read.
func (w *wire) line() ([]byte, error) {
	line, err := w.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		for line = bytes.Clone(line); err == bufio.ErrBufferFull && len(line) < maxHead; {
			var more []byte
			more, err = w.ReadSlice('\n')
			line = append(line, more...)
		}
	}
	switch err {
	case nil:
		return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
	case bufio.ErrBufferFull:
		return nil, errMalformed
	}
	return nil, err
}

// head reads a head. length is −1 if the header does not give the length of the body.
func (w *wire) head(a *answer) (length int64, chunked bool, err error) {
	a.begin(0)
	line, err := w.line()
	if err != nil {
		return 0, false, err
	}
	if len(line) < 12 || string(line[:7]) != "HTTP/1." {
		return 0, false, errMalformed
	}
	a.last = line[7] == '0'
	closes := false // Connection says close
	status := number(line[9:12])
	if status < 100 {
		return 0, false, errMalformed
	}
	a.status, length = uint16(status), -1
	for size := len(line); ; size += len(line) {
		if line, err = w.line(); err != nil || len(line) == 0 {
			return length, chunked, err
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 0 || size > maxHead {
			return 0, false, errMalformed
		}
		name, value := line[:colon], bytes.TrimSpace(line[colon+1:])
		switch {
		case is(name, "content-length"):
			if length = number(value); length < 0 {
				return 0, false, errMalformed
			}
		case is(name, "transfer-encoding"): // chunked comes last, if at all
			chunked = has(value, "chunked")
		case is(name, "connection"):
			if has(value, "close") {
				a.last, closes = true, true
			} else if has(value, "keep-alive") {
				a.last = closes
			}
		default:
			a.notice(name, value, w.nodeHeader)
		}
	}
}

// notice reads a header line if the score needs it.
func (a *answer) notice(name, value, nodeHeader []byte) {
	switch {
	case is(name, "retry-after"):
		a.retry = judge.BadRetry
		if n := number(value); n >= 0 {
			a.retry = int32(min(n, math.MaxInt32))
		}
	case is(name, "refusal-id"):
		if a.status == 503 { // one without an ID is due to an unavailable shard
			a.flags |= prepared
		}
	case is(name, "ratelimit-policy"):
		a.policy = append(a.policy, value...)
	case is(name, "ratelimit"):
		a.quota.list(value)
	case is(name, "x-ratelimit-remaining"):
		a.older.take(number(value), -1)
	case is(name, "x-ratelimit-reset"):
		if n := number(value); n < minTimestamp {
			a.older.back = max(a.older.back, n)
		}
	case len(nodeHeader) > 0 && bytes.EqualFold(name, nodeHeader):
		a.node = append(a.node, value...)
	}
}

// minTimestamp is the least X-RateLimit-Reset that is treated as a timestamp, which some servers send, instead
// of a number of seconds.
const minTimestamp = 1_000_000_000

// A quota holds the state of limits that one form of headers in an answer reports. Missing values are −1.
type quota struct {
	remaining int64 // the least of all limits
	back      int64 // seconds until every exhausted limit allows requests again
}

// take adds the values for one limit.
func (q *quota) take(remaining, back int64) {
	if remaining >= 0 && (q.remaining < 0 || remaining < q.remaining) {
		q.remaining = remaining
	}
	if remaining == 0 {
		q.back = max(q.back, back)
	}
}

// list parses a structured list such as "everything";r=0;t=21, "login";r=3;t=9.
func (q *quota) list(value []byte) {
	var limit, parameter []byte
	for len(value) > 0 {
		limit, value = cutUnquoted(value, ',')
		remaining, back := int64(-1), int64(-1)
		for len(limit) > 0 {
			parameter, limit = cutUnquoted(limit, ';')
			name, digits, _ := bytes.Cut(bytes.TrimSpace(parameter), []byte("="))
			switch string(name) {
			case "r":
				remaining = number(digits)
			case "t":
				back = number(digits)
			}
		}
		q.take(remaining, back)
	}
}

// cutUnquoted slices b around the first separator that is not in a quoted string.
func cutUnquoted(b []byte, separator byte) (before, after []byte) {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case b[i] == separator && !quoted:
			return b[:i], b[i+1:]
		}
	}
	return b, nil
}

// least returns the least remaining quota of both forms, or −1 if both lack it.
func (a *answer) least() int32 {
	both := a.quota
	both.take(a.older.remaining, -1)
	return int32(min(both.remaining, math.MaxInt32))
}

// disagreement returns otherTime if either form disagrees with Retry-After, else 0.
func (a *answer) disagreement() flags {
	for _, q := range []quota{a.quota, a.older} {
		if q.remaining == 0 && q.back >= 0 && a.retry > 0 && q.back != int64(a.retry) {
			return otherTime
		}
	}
	return 0
}

// is reports whether b equals word, ignoring case.
func is(b []byte, word string) bool { return len(b) == len(word) && strings.EqualFold(string(b), word) }

// has reports whether a comma-separated list contains word, ignoring case.
func has(list []byte, word string) bool {
	return httpguts.HeaderValuesContainsToken([]string{string(list)}, word)
}

// number parses a number that consists only of decimal digits. It returns −1 if b is not one.
func number(b []byte) int64 {
	n, err := strconv.ParseUint(string(b), 10, 63)
	if err != nil {
		return -1
	}
	return int64(n)
}

// expects reports whether a body of this length may be that of a rule's response. Very long bodies
// are not compared.
func (w *wire) expects(length int64) bool {
	return slices.ContainsFunc(w.bodies, func(b []byte) bool { return int64(len(b)) == length && len(b) <= maxHead/2 })
}

// compare records whether body is that of a rule's response.
func (a *answer) compare(body []byte, bodies [][]byte) {
	if slices.ContainsFunc(bodies, func(b []byte) bool { return bytes.Equal(b, body) }) {
		a.flags |= prepared
	}
}

// chunks reads a chunked body with its trailer.
func (w *wire) chunks() error {
	for {
		line, err := w.line()
		if err != nil {
			return err
		}
		digits, _, _ := bytes.Cut(line, []byte(";")) // extensions may follow
		size, err := strconv.ParseUint(string(bytes.TrimRight(digits, " ")), 16, 44)
		if err != nil {
			return errMalformed
		}
		if size == 0 {
			break
		}
		if _, err := w.Discard(int(size)); err != nil {
			return err
		}
		if line, err = w.line(); err != nil {
			return err
		}
		if len(line) > 0 {
			return errMalformed
		}
	}
	for {
		line, err := w.line()
		if err != nil || len(line) == 0 {
			return err
		}
	}
}
