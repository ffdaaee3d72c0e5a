package load

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

var errMalformed = errors.New("load: malformed answer")

// An answer is what is read of a response.
type answer struct {
	status uint16
	retry  uint32
	quota  quota // RateLimit
	older  quota // X-RateLimit-Remaining and -Reset
	flags  flags
	last   bool   // the connection ends after it
	node   []byte // as Options.NodeHeader says; reused
}

// begin forgets the answer before.
func (a *answer) begin(status uint16) {
	nothing := quota{-1, -1}
	*a = answer{status: status, quota: nothing, older: nothing, node: a.node[:0]}
}

// A wire reads the responses of an HTTP/1.1 connection, one at a time.
// It looks at what it needs and allocates nothing.
type wire struct {
	from       io.Reader
	buf        []byte
	have       int // bytes in buf that are not read yet
	at         int // where they begin
	nodeHeader []byte
	bodies     [][]byte // that rules answer with
}

func (w *wire) reset(from io.Reader) { w.from, w.have, w.at = from, 0, 0 }

// mostHead is how long a head may be, in bytes, or any line.
const mostHead = 1 << 18

// fill reads more behind what there is.
func (w *wire) fill() error {
	if w.at > 0 && w.at+w.have == len(w.buf) {
		copy(w.buf, w.buf[w.at:w.at+w.have])
		w.at = 0
	}
	if w.have == len(w.buf) {
		if w.have >= mostHead {
			return errMalformed
		}
		w.buf = append(w.buf, make([]byte, len(w.buf))...)
	}
	n, err := w.from.Read(w.buf[w.at+w.have:])
	w.have += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func (w *wire) unread() []byte { return w.buf[w.at : w.at+w.have] }

func (w *wire) skip(n int) {
	w.at, w.have = w.at+n, w.have-n
	if w.have == 0 {
		w.at = 0
	}
}

// read reads the answer to a request. bodiless says that it has no body whatever it says.
func (w *wire) read(a *answer, bodiless bool) error {
	for {
		end, err := w.head()
		if err != nil {
			return err
		}
		length, chunked, err := w.parse(a, w.unread()[:end])
		if err != nil {
			return err
		}
		w.skip(end)
		switch {
		case a.status == 101:
			return errMalformed // nobody asked for it
		case a.status < 200:
			continue
		case bodiless || a.status == 204 || a.status == 304:
			return nil
		case chunked:
			return w.chunks()
		case length < 0:
			a.last = true
			return w.rest()
		}
		return w.body(a, length)
	}
}

var headEnd = []byte("\r\n\r\n")

// head returns how long the head is, once it is there.
func (w *wire) head() (int, error) {
	looked := 0
	for {
		if i := bytes.Index(w.unread()[looked:], headEnd); i >= 0 {
			return looked + i + len(headEnd), nil
		}
		looked = max(0, w.have-len(headEnd)+1)
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
}

// parse reads the lines of a head. length is −1 if nothing says how long the body is.
func (w *wire) parse(a *answer, head []byte) (length int64, chunked bool, err error) {
	a.begin(0)
	if len(head) < 13 || string(head[:7]) != "HTTP/1." {
		return 0, false, errMalformed
	}
	a.last = head[7] == '0'
	closes := false // it says so
	status, ok := number(head[9:12])
	if !ok || status < 100 {
		return 0, false, errMalformed
	}
	a.status, length = uint16(status), -1
	at := bytes.IndexByte(head, '\n') + 1
	for at < len(head)-2 {
		end := at + bytes.IndexByte(head[at:], '\n')
		line := bytes.TrimSuffix(head[at:end], []byte("\r"))
		at = end + 1
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			return 0, false, errMalformed
		}
		name, value := line[:colon], bytes.TrimSpace(line[colon+1:])
		switch {
		case is(name, "content-length"):
			if length, ok = number(value); !ok {
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
	return length, chunked, nil
}

// notice looks at a header line for what the score needs.
func (a *answer) notice(name, value, nodeHeader []byte) {
	switch {
	case is(name, "retry-after"):
		switch n, ok := number(value); {
		case !ok:
			a.flags |= retryBad
		case n == 0:
			a.flags |= retryZero
		default:
			a.retry = uint32(min(n, 1<<31))
		}
	case is(name, "refusal-id"):
		if a.status == 503 { // what has no ID is the answer of a node without a shard
			a.flags |= prepared
		}
	case is(name, "ratelimit"):
		a.quota.list(value)
	case is(name, "x-ratelimit-remaining"):
		if n, ok := number(value); ok {
			a.older.take(n, -1)
		}
	case is(name, "x-ratelimit-reset"):
		if n, ok := number(value); ok && n < aDate {
			a.older.back = max(a.older.back, n)
		}
	case len(nodeHeader) > 0 && bytes.EqualFold(name, nodeHeader):
		a.node = append(a.node, value...)
	}
}

// aDate is the least X-RateLimit-Reset that is a date, as some servers send, instead of a number of
// seconds.
const aDate = 1_000_000_000

// A quota is what an answer says of limits in one form of headers. What it does not say is −1.
type quota struct {
	remaining int64 // the least
	back      int64 // seconds until every exhausted limit allows requests again
}

// take adds what an answer says of a limit.
func (q *quota) take(remaining, back int64) {
	if remaining >= 0 && (q.remaining < 0 || remaining < q.remaining) {
		q.remaining = remaining
	}
	if remaining == 0 {
		q.back = max(q.back, back)
	}
}

// list reads a structured list such as "everything";r=0;t=21, "login";r=3;t=9.
func (q *quota) list(value []byte) {
	remaining, back := int64(-1), int64(-1)
	for at := 0; at < len(value); {
		switch value[at] {
		case '"':
			at += quoted(value[at:])
		case ',':
			q.take(remaining, back)
			remaining, back = -1, -1
			at++
		case ';':
			for at++; at < len(value) && value[at] == ' '; at++ {
			}
			if at+1 >= len(value) || value[at+1] != '=' {
				continue
			}
			name, digits := value[at], at+2
			for at = digits; at < len(value) && '0' <= value[at] && value[at] <= '9'; at++ {
			}
			n, ok := number(value[digits:at])
			switch {
			case !ok || at < len(value) && value[at] == '.': // no integer
			case name == 'r':
				remaining = n
			case name == 't':
				back = n
			}
		default:
			at++
		}
	}
	q.take(remaining, back)
}

// quoted returns how long the string is that b begins with.
func quoted(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// least returns the least that remains by either form, −1 if none says so.
func (a *answer) least() int32 {
	n := a.quota.remaining
	if m := a.older.remaining; n < 0 || 0 <= m && m < n {
		n = m
	}
	return int32(min(n, 1<<31-1))
}

// agreement returns otherTime if one of the forms says another time than Retry-After.
func (a *answer) agreement() flags {
	for _, q := range []quota{a.quota, a.older} {
		if q.remaining == 0 && q.back >= 0 && a.retry > 0 && q.back != int64(a.retry) {
			return otherTime
		}
	}
	return 0
}

// is reports whether b is the word, which is in lower case.
func is(b []byte, word string) bool { return len(b) == len(word) && alike(b, word) } // inlined

func alike(b []byte, word string) bool {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// has reports whether a list has the word, which is in lower case.
func has(list []byte, word string) bool {
	for len(list) > 0 {
		end := bytes.IndexByte(list, ',')
		if end < 0 {
			end = len(list)
		}
		if is(bytes.TrimSpace(list[:end]), word) {
			return true
		}
		list = list[min(end+1, len(list)):]
	}
	return false
}

func number(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// body reads a body of a length.
func (w *wire) body(a *answer, length int64) error {
	if w.expects(length) {
		for int64(w.have) < length {
			if err := w.fill(); err != nil {
				return err
			}
		}
		a.compare(w.unread()[:length], w.bodies)
	}
	return w.discard(length)
}

// expects reports whether a body of this length may be one that rules answer with. Very
// long ones are not looked at.
func (w *wire) expects(length int64) bool {
	for _, b := range w.bodies {
		if int64(len(b)) == length && len(b) <= mostHead/2 {
			return true
		}
	}
	return false
}

// compare notes whether a body is one that rules answer with.
func (a *answer) compare(body []byte, bodies [][]byte) {
	for _, b := range bodies {
		if bytes.Equal(b, body) {
			a.flags |= prepared
		}
	}
}

// rest reads until the connection ends.
func (w *wire) rest() error {
	for {
		w.skip(w.have)
		switch err := w.fill(); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// line returns the next line without its end. It is valid until the next read.
func (w *wire) line() ([]byte, error) {
	for {
		if i := bytes.IndexByte(w.unread(), '\n'); i >= 0 {
			line := bytes.TrimSuffix(w.unread()[:i], []byte("\r"))
			w.skip(i + 1)
			return line, nil
		}
		if err := w.fill(); err != nil {
			return nil, err
		}
	}
}

// chunks reads a chunked body with its trailer.
func (w *wire) chunks() error {
	for {
		line, err := w.line()
		if err != nil {
			return err
		}
		size, ok := hexadecimal(line)
		if !ok {
			return errMalformed
		}
		if size == 0 {
			break
		}
		if err := w.discard(size); err != nil {
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

// discard reads n bytes.
func (w *wire) discard(n int64) error {
	for {
		some := int(min(n, int64(w.have)))
		w.skip(some)
		if n -= int64(some); n == 0 {
			return nil
		}
		if err := w.fill(); err != nil {
			return err
		}
	}
}

// hexadecimal reads the size of a chunk, which extensions may follow.
func hexadecimal(b []byte) (int64, bool) {
	if i := bytes.IndexAny(b, "; "); i >= 0 {
		b = b[:i]
	}
	n, err := strconv.ParseUint(string(b), 16, 44)
	return int64(n), err == nil
}
