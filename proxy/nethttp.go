package proxy

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// An Admission is a request that net/http serves, and what was decided about it. Its methods must not
// be called concurrently.
type Admission struct {
	x exchange
	c netClient
}

// Admit decides r, and counts it if it passes. Rules that count by the answer count it when Answered
// is called.
func (p *Proxy) Admit(r *http.Request) *Admission {
	a := new(Admission)
	a.c = netClient{x: &a.x, r: r}
	a.x.p, a.x.c, a.x.net = p, &a.c, &a.c
	a.x.decide()
	return a
}

// Refused reports whether the request must not be served. If so, Refuse answers it.
func (a *Admission) Refused() bool { return a.x.decision.Verdict.Refused() }

// Refuse answers the request as specified by its rule. For a rule with the action close it panics
// with [http.ErrAbortHandler], so that net/http closes the connection.
func (a *Admission) Refuse(w http.ResponseWriter, r *http.Request) {
	a.c.answerTo(w, r)
	a.x.refuse()
	a.c.finish()
}

// Sign sets the header fields of the answer to a request that passed: the client's remaining quotas and
// the name of the node.
func (a *Admission) Sign(header http.Header) {
	p := a.x.p
	var buf [512]byte
	fields := p.o.Headers.append(buf[:0], p.o.Limiter, &a.x.decision, a.x.now)
	setLines(header, p.appendNode(fields))
}

// CountsAnswer reports whether a rule waits for Answered.
func (a *Admission) CountsAnswer() bool { return a.x.decision.CountsAnswer() }

// Answered counts a request that passed, for the rules that count by the answer. It must be called
// at most once.
func (a *Admission) Answered(status int, header http.Header) {
	a.x.p.o.Limiter.Answered(&a.x.decision, status, header, a.x.p.o.Now())
}

// ServeHTTP decides r, then relays or answers it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.serveNet(w, r, nil) }

// serveNet serves a request on c, which is nil if it was accepted by a server other than a netServer.
func (p *Proxy) serveNet(w http.ResponseWriter, r *http.Request, c *conn) {
	a := p.Admit(r)
	a.c.conn = c
	a.c.answerTo(w, r)
	a.x.line = requestLine{r.Method, r.Host, r.RequestURI, r.Proto}
	if a.x.admit() {
		a.x.Pass()
	} else {
		a.x.end()
	}
	a.c.finish()
}

// A netClient is the client of a request that net/http serves. It is also the writer of the answer, of which it
// remembers what the access log needs. Each write and flush has a deadline.
type netClient struct {
	http.ResponseWriter
	control http.ResponseController // of the ResponseWriter
	x       *exchange
	r       *http.Request
	conn    *conn // nil if a server other than a netServer has accepted it
	body    *body // of the request while it is relayed; nil if it has none
	err     error // why the origin's answer could not be relayed
	dropped bool
	status  int   // of the answer
	bytes   int64 // of its body
}

// answerTo makes w receive the answer to r.
func (c *netClient) answerTo(w http.ResponseWriter, r *http.Request) {
	c.r, c.ResponseWriter, c.control = r, w, *http.NewResponseController(w)
	c.x.lines = make([]byte, 0, 512)
}

// finish must be called after the answer.
func (c *netClient) finish() {
	if c.dropped {
		// net/http closes the connection of HTTP/1, and resets the stream of HTTP/2.
		panic(http.ErrAbortHandler)
	}
	if timeout := c.x.p.o.BodyTimeout; timeout > 0 && c.r.ProtoMajor == 1 {
		// net/http writes the end of the answer after the handler, however long ago the last part was.
		_ = c.control.SetWriteDeadline(time.Now().Add(timeout))
	}
}

// RemoteAddr returns the address of the connection, or that of its PROXY protocol header.
func (c *netClient) RemoteAddr() netip.AddrPort {
	addr, _ := netip.ParseAddrPort(c.r.RemoteAddr)
	return addr
}

// Secure reports whether the client uses TLS.
func (c *netClient) Secure() bool { return c.r.TLS != nil }

// describe copies the request into q.
func (c *netClient) describe(q *rule.Request) {
	r := c.r
	q.Method, q.Host, q.Path, q.Query, q.Header = r.Method, r.Host, r.URL.EscapedPath(), r.URL.RawQuery, r.Header
	q.Malformed = r.URL.Opaque != "" || !validHost(r.Host)
}

// Answer answers the request. fields are lines that end in CRLF.
func (c *netClient) Answer(_ *http1.Request, status int, fields []byte, body string) {
	header := c.Header()
	if c.body == nil {
		c.discard()
	} else if c.body.err() != nil || c.r.ProtoMajor == 1 && !c.body.ended.Load() {
		// net/http would read the rest of the body after the handler, and panic in the next request.
		header.Set("Connection", "close")
	}
	setLines(header, fields)
	bodiless := status == http.StatusNoContent || status == http.StatusNotModified
	if !bodiless {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	c.WriteHeader(status)
	if !bodiless && c.r.Method != http.MethodHead {
		_, _ = c.Write(append(fields[:0], body...)) // the client may be gone
	}
}

// setLines sets the fields of lines that end in CRLF.
func setLines(header http.Header, lines []byte) {
	for line := range strings.SplitSeq(string(lines), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			header[name] = []string{value}
		}
	}
}

// maxDiscarded is how much of an unread body is discarded to keep the connection.
const maxDiscarded = 256 << 10

// discard prepares an answer that does not wait for the request's body. The connection stays open if
// the whole body has arrived. Otherwise it is closed after the answer.
func (c *netClient) discard() {
	if c.r.ProtoMajor != 1 || c.r.Body == http.NoBody {
		return
	}
	_ = c.control.SetReadDeadline(time.Unix(1, 0))
	if _, expects := c.r.Header["Expect"]; !expects { // reading would ask for the body
		if _, err := io.CopyN(io.Discard, c.r.Body, maxDiscarded); err == io.EOF {
			_ = c.control.SetReadDeadline(time.Time{})
			return
		}
	}
	c.Header().Set("Connection", "close")
	if c.conn != nil {
		c.conn.linger.Store(true)
	}
}

// Refuse closes the connection after the answer if last is set.
func (c *netClient) Refuse(last bool) {
	if last {
		c.Header().Set("Connection", "close")
	}
}

// Drop closes the connection without an answer.
func (c *netClient) Drop() { c.dropped = true }

// Gone closes the connection of a client that has disconnected. status is for the access log.
func (c *netClient) Gone(status int) {
	c.Drop()
	c.status = status
}

// Sent returns the status of the answer and the number of bytes of its body.
func (c *netClient) Sent() (status int, bytes int64) { return c.status, c.bytes }

type netClientKey struct{}

func netClientOf(r *http.Request) *netClient {
	c, _ := r.Context().Value(netClientKey{}).(*netClient)
	return c
}

// Relay sends the request to its origin, and the origin's answer to the client. Errors are those of
// http1.Conn.Relay.
func (c *netClient) Relay(*http1.Request, *http1.Origin, http1.Relay) error {
	r := c.r
	if r.Body != http.NoBody {
		c.body = newBody(r.Body, &c.control, &c.x.p.o)
		r.Body = c.body
		if r.ProtoMajor == 1 {
			// The origin may answer before it has the whole request. Not every writer allows that.
			_ = c.control.EnableFullDuplex()
		}
		defer c.body.leave() // the transport may read until the origin's connection ends
	}
	c.x.p.forward.ServeHTTP(c, r.WithContext(context.WithValue(r.Context(), netClientKey{}, c)))
	switch failed := c.body.err(); {
	case c.err == nil:
		return nil
	case failed != nil && http1.IsTimeout(failed):
		return &http1.RelayError{Client: true, Err: failed}
	case failed != nil:
		return &http1.RelayError{Client: true, Err: &http1.Error{Status: http.StatusBadRequest, Text: http.StatusText(http.StatusBadRequest)}}
	}
	return &http1.RelayError{Client: r.Context().Err() != nil, Err: c.err}
}

// newForward returns what relays requests for net/http.
func (p *Proxy) newForward() httputil.ReverseProxy {
	return httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      roundTripper{},
		ModifyResponse: answered,
		ErrorHandler:   func(_ http.ResponseWriter, r *http.Request, err error) { netClientOf(r).err = err },
		BufferPool:     new(buffers),
		ErrorLog:       slog.NewLogLogger(p.o.Logger.Handler(), slog.LevelDebug),
	}
}

// rewrite changes the request for the origin.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	x := netClientOf(pr.In).x
	pr.Out.URL.Scheme, pr.Out.URL.Host = x.origin.scheme, x.origin.host
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as received, not as Go would write it
	pr.Out.Host = pr.In.Host
	pr.Out.Trailer = pr.In.Trailer // set when the body has been read
	if x.trusted {
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	}
	pr.SetXForwarded()
	if x.trusted {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
			if v, ok := pr.In.Header[name]; ok {
				pr.Out.Header[name] = v
			}
		}
	}
	if http1.IsHTTP([]byte(pr.Out.Header.Get("Upgrade"))) {
		// Requests on such a connection would bypass the node.
		pr.Out.Header.Del("Upgrade")
		pr.Out.Header.Del("Connection")
	}
	for name := range pr.Out.Header {
		if odd([]byte(name)) && p.shadows(name, pr.In.Header["Connection"]) {
			delete(pr.Out.Header, name)
		}
	}
	if _, ok := pr.Out.Header["User-Agent"]; !ok {
		pr.Out.Header["User-Agent"] = nil // or the transport would add its own
	}
}

// answered receives the origin's answer before the client does.
func answered(resp *http.Response) error {
	c := netClientOf(resp.Request)
	header := c.Header()
	if c.body != nil {
		c.body.answered.Store(true)
		if resp.Request.ProtoMajor == 1 && !c.body.ended.Load() {
			// net/http panics if the rest of a body follows the answer.
			header["Connection"] = []string{"close"}
		}
	}
	if _, ok := resp.Header["Content-Type"]; !ok {
		header["Content-Type"] = nil // or net/http would guess one from the body
	}
	// Not into the answer's header, which is copied in Go's spelling.
	setLines(header, c.x.answeredBy(c.x.lines, resp.StatusCode, resp.Header))
	return nil
}

// A roundTripper sends a request to its origin. If a rule counts by the answer, it waits for the
// answer's header even if the client does not. Otherwise a client could try any number of passwords
// without waiting, and learn from its next request whether one was right.
type roundTripper struct{}

func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	c := netClientOf(r)
	x := c.x
	if !x.Hasty() {
		return x.origin.transport.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	left := make(chan struct{})
	var late *time.Timer // ends an abandoned request
	stay := context.AfterFunc(r.Context(), func() {
		defer close(left)
		if x.gone(c.body == nil || c.body.ended.Load(), cancel) {
			late = time.AfterFunc(x.origin.timeout, cancel)
		} else {
			cancel()
		}
	})
	resp, err := x.origin.transport.RoundTrip(r.WithContext(ctx))
	if stay() {
		if err == nil {
			context.AfterFunc(r.Context(), cancel) // only the client needs the body
		} else {
			cancel()
		}
		return resp, err
	}
	<-left
	if err == nil {
		_ = resp.Body.Close()
	}
	cancel()
	if late != nil {
		late.Stop()
		if err == nil {
			x.answeredBy(nil, resp.StatusCode, resp.Header)
		}
	}
	return nil, r.Context().Err()
}

// WriteHeader writes the header of the answer or of an interim one. When the server leaves, the answer closes the
// connection, which net/http turns into GOAWAY in HTTP/2.
func (c *netClient) WriteHeader(status int) {
	if c.status < http.StatusOK {
		c.status = status
	}
	if status >= http.StatusOK && c.conn != nil && c.conn.s.IsLeaving() {
		c.Header().Set("Connection", "close")
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body.
func (c *netClient) Write(p []byte) (n int, err error) {
	if c.status < http.StatusOK {
		c.status = http.StatusOK
	}
	c.within(func() { n, err = c.ResponseWriter.Write(p) })
	c.bytes += int64(n)
	return n, err
}

// FlushError is called by [http.ResponseController.Flush].
func (c *netClient) FlushError() (err error) {
	c.within(func() { err = c.control.Flush() })
	return err
}

// within calls write with a deadline. In HTTP/1 the deadline also applies to what is buffered and
// written after the handler. In HTTP/2 it would end a stream that has nothing to send for a while.
func (c *netClient) within(write func()) {
	timeout := c.x.p.o.BodyTimeout
	if timeout > 0 {
		_ = c.control.SetWriteDeadline(time.Now().Add(timeout))
	}
	write()
	if timeout > 0 && c.r.ProtoMajor == 2 {
		_ = c.control.SetWriteDeadline(time.Time{})
	}
}

// Unwrap lets http.ResponseController find the features of the inner writer.
func (c *netClient) Unwrap() http.ResponseWriter { return c.ResponseWriter }
