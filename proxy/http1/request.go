package http1

import (
	"bytes"
	"math"
)

// A Request is the head of a request. Its results are valid until the body is read.
type Request struct {
	hostless bool // has no host, as HTTP/1.0 allows

	Head    bool // the method is HEAD: answers have no body
	Upgrade bool // the client asks for another protocol

	head

	method, target [2]uint32 // start and end in raw
	authority      [2]uint32 // of a target in absolute form
	path           uint32    // start of the path
	host           [2]uint32 // value of Host, or the authority
}

func (r *Request) reset() {
	fields, known, options := r.fields[:0], r.known[:0], r.options[:0]
	*r = Request{} // cleared in place, without a copy on the stack
	r.fields, r.known, r.options = fields, known, options
}

// Method returns the method as it was sent.
func (r *Request) Method() []byte { return r.raw[r.method[0]:r.method[1]] }

// Target returns the request target as it was sent.
func (r *Request) Target() []byte { return r.raw[r.target[0]:r.target[1]] }

// Host returns the host of the request: that of the target if it has one, else the value of Host (RFC 9112, 3.2.2).
func (r *Request) Host() []byte { return r.raw[r.host[0]:r.host[1]] }

// Path returns the path and query of the target, or * for the whole server.
func (r *Request) Path() []byte {
	path := r.raw[r.path:r.target[1]]
	if len(path) == 0 || path[0] == '?' {
		return append([]byte{'/'}, path...)
	}
	return path
}

// maxEmptyLines is how many empty lines may come before a request: some old clients end a body with one (RFC 9112,
// 2.2).
const maxEmptyLines = 2

// scan reads the head from buf, and reports whether the head is complete. It continues where the last call ended; buf
// may be another buffer that begins with the same bytes. maxBytes is the maximum size of the head, in which each field
// counts fieldSize bytes more than its line.
func (r *Request) scan(buf []byte, maxBytes int) (done bool, err error) {
	for !r.begun {
		from, to, ok, _ := r.nextLine(buf) // the start line may end in LF
		if !ok {
			if r.line < len(buf) && buf[r.line] != '\r' && class[buf[r.line]]&tchar == 0 {
				return false, errRequestLine // do not wait: another protocol, such as TLS, may never end a line
			}
			if len(buf)-r.start > maxBytes {
				return false, errTargetSize
			}
			return false, nil
		}
		if from == to && r.line <= 2*maxEmptyLines {
			r.start = r.line
			continue
		}
		if r.line-r.start > maxBytes {
			return false, errTargetSize
		}
		if err := r.requestLine(buf[from:to]); err != nil {
			return false, err
		}
		r.begun = true
	}
	if done, err = r.scanFields(buf, maxBytes, MaxFields); err != nil || !done {
		return false, err
	}
	return true, r.finish()
}

// requestLine reads the method, target and version (RFC 9112, 3).
func (r *Request) requestLine(line []byte) error {
	method := bytes.IndexByte(line, ' ')
	if method < 0 || !all(line[:method], tchar) {
		return errRequestLine
	}
	end := bytes.LastIndexByte(line, ' ')
	if end <= method+1 {
		return errRequestLine // includes HTTP/0.9
	}
	if !all(line[method+1:end], target) {
		return errTarget
	}
	version := line[end+1:]
	if len(version) != len("HTTP/1.1") || string(version[:5]) != "HTTP/" || version[6] != '.' ||
		class[version[5]]&digit == 0 || class[version[7]]&digit == 0 {
		return errRequestLine
	}
	if version[5] != '1' {
		return errVersion
	}
	r.Minor = int(version[7] - '0')
	r.Close = r.Minor == 0
	r.method = [2]uint32{0, uint32(method)}
	r.Head = string(line[:method]) == "HEAD"
	r.target = [2]uint32{uint32(method + 1), uint32(end)}
	return r.splitTarget(line[:method], line[method+1:end])
}

// splitTarget finds the parts of a target in origin form, absolute form, authority form (for CONNECT)
// or asterisk form (for OPTIONS): RFC 9112, 3.2.
func (r *Request) splitTarget(method, t []byte) error {
	r.path = r.target[0]
	switch {
	case t[0] == '/':
		return nil
	case string(method) == "CONNECT":
		if port := bytes.LastIndexByte(t, ':') + 1; port == 0 || !all(t[port:], digit) {
			return errTarget
		}
		r.authority = r.target
		r.path = r.target[1]
		return nil
	case string(t) == "*" && string(method) == "OPTIONS":
		return nil
	}
	var from int
	switch {
	case len(t) > 7 && equalFold(t[:7], "http://"):
		from = 7
	case len(t) > 8 && equalFold(t[:8], "https://"):
		from = 8
	default:
		return errTarget
	}
	to := from
	for to < len(t) && t[to] != '/' && t[to] != '?' {
		to++
	}
	if from == to {
		return errTarget
	}
	r.authority = [2]uint32{r.target[0] + uint32(from), r.target[0] + uint32(to)}
	r.path = r.authority[1]
	return nil
}

// finish checks the complete head.
func (r *Request) finish() error {
	hosts := 0
	for _, i := range r.known {
		switch f := &r.fields[i]; f.Name {
		case Host:
			hosts++
			r.host = [2]uint32{f.valueAt, f.valueEnds}
		case Expect:
			if !equalFold(r.ValueOf(f), "100-continue") {
				return errExpect
			}
		}
	}
	r.hostless = hosts == 0 && r.authority[1] == 0
	if hosts > 1 || hosts == 0 && r.Minor > 0 {
		return errHost
	}
	if err := r.frame(); err != nil {
		return err
	}
	if r.authority[1] > 0 {
		r.host = r.authority
	}
	for _, i := range r.known {
		if f := &r.fields[i]; f.Name == Upgrade && r.upgrade && r.Minor > 0 && !hidesRequests(r.ValueOf(f)) {
			r.Upgrade, f.dropped = true, false
		}
	}
	// Handlers refuse CONNECT, but the bytes after it may be meant for the tunnel.
	r.Close = r.Close || string(r.Method()) == "CONNECT"
	return nil
}

// hidesRequests reports whether an Upgrade field asks for a version of HTTP or TLS, such as h2c or TLS/1.0 (RFC 2817).
// Requests in such a tunnel would bypass the node.
func hidesRequests(upgrade []byte) bool {
	for e := range elements(upgrade) {
		for _, name := range [...]string{"h2", "http", "tls"} {
			if len(e) >= len(name) && equalFold(e[:len(name)], name) {
				return true
			}
		}
	}
	return false
}

// Parse reads a complete head. The caller has checked its size.
func (r *Request) Parse(raw []byte) error {
	r.reset()
	done, err := r.scan(raw, math.MaxInt)
	if err == nil && !done {
		return errRequestLine
	}
	return err
}

// Framed determines how the body ends on a stream of HTTP/2 or HTTP/3, which the head does not say. ended says that the
// stream has ended with the head. It reports whether the declared length is possible.
func (r *Request) Framed(ended bool) bool {
	switch {
	case ended || r.Length == 0:
		r.Body = NoBody
	case r.Length > 0:
		r.Body = Sized
	default:
		r.Body = Chunked
	}
	return !ended || r.Length <= 0
}

// AppendHead appends the head for the origin: as received, but without connection-specific fields, and with the changes
// of relay.
func (r *Request) AppendHead(dst []byte, relay Relay) []byte {
	dst = append(append(dst, r.Method()...), ' ')
	dst = append(dst, r.Path()...)
	if r.hostless { // HTTP/1.1 does not allow that
		dst = append(dst, " HTTP/1.0\r\n"...)
	} else {
		dst = append(dst, " HTTP/1.1\r\n"...)
	}
	if r.authority[1] > 0 {
		dst = append(append(append(dst, "Host: "...), r.Host()...), "\r\n"...)
	}
	for f := range r.Fields {
		if f.Name == Host && r.authority[1] > 0 || !relay.Keeps(f, r.NameOf(f)) {
			continue
		}
		dst = append(append(dst, r.raw[f.start:f.valueEnds]...), "\r\n"...)
	}
	dst = relay.AppendRequest(dst)
	if r.Body == Chunked {
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	if r.Upgrade {
		dst = append(dst, "Connection: upgrade\r\n"...)
	}
	return append(dst, "\r\n"...)
}
