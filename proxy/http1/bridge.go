package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/edgelimit/edge/proxy/conns"
)

// A bridge is a connection in HTTP/1.1 to an origin that speaks HTTP/2. Relays do not notice the difference: they have
// one end of a pipe, and a goroutine at its other end reads requests and writes answers.
type bridge struct {
	net.Conn
	p       *pool
	ctx     context.Context
	cancel  func()
	far     net.Conn // the other end
	out     *bufio.Writer
	halved  atomic.Bool           // CloseWrite was called
	failure atomic.Pointer[error] // why the origin did not answer
}

func newBridge(p *pool) *bridge {
	near, far := net.Pipe()
	b := &bridge{Conn: near, p: p, far: far, out: bufio.NewWriter(far)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	go b.serve()
	return b
}

// readers hold what a relay writes first: a head with a part of its body. A pipe has no buffer, and the relay must then
// read the answer even if the origin does not accept that part.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, largeBuffer+maxTrailers) }}

// serve relays requests until one fails or the relay closes the connection. It holds no reader between requests.
func (b *bridge) serve() {
	defer b.cancel()
	defer b.far.Close()
	for again := true; again; {
		if _, err := b.far.Read(nil); err != nil { // waits until the relay writes
			return
		}
		in := readers.Get().(*bufio.Reader)
		in.Reset(b.far)
		var err error
		again, err = b.exchange(in)
		if err != nil {
			b.failure.Store(&err)
		}
		if again { // otherwise, the transport may still read
			in.Reset(nil)
			readers.Put(in)
		}
	}
}

// Read reads the answer. If the answer ends too early, the error says why.
func (b *bridge) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if failure := b.failure.Load(); err == io.EOF && failure != nil {
		err = bridgeError{*failure}
	}
	return n, err
}

// A bridgeError is an error of a bridge's transport. It hides os.ErrDeadlineExceeded, which the relay would mistake for
// a deadline of its own.
type bridgeError struct{ err error }

func (e bridgeError) Error() string   { return e.err.Error() }
func (e bridgeError) Timeout() bool   { return IsTimeout(e.err) }
func (e bridgeError) Temporary() bool { return false }

// mayRepeat reports whether the request may be sent again: because the origin has not seen it, or because the
// connection was lost and the request is idempotent.
func (e bridgeError) mayRepeat(idempotent bool) bool {
	_, lost := e.err.(lostError)
	return e.err == errUnsent || lost && idempotent
}

// A lostError is the error of a request whose connection was lost before the answer.
type lostError struct{ error }

// errUnsent is the error if the transport has begun to send a body, and the origin did not process the request.
var errUnsent = errors.New("http1: the origin has not accepted the request")

// open reports whether b is still usable: the origin must not have changed to HTTP/1.1.
func (b *bridge) open() bool { return b.p.last() == protoHTTP2 }

// CloseWrite says that the request is incomplete. The origin gets the end of the stream only if it knows the length:
// otherwise it would take the request for a whole one.
func (b *bridge) CloseWrite() error {
	b.halved.Store(true)
	return b.far.SetReadDeadline(conns.Past)
}

// Close also ends the current exchange.
func (b *bridge) Close() error {
	b.cancel()
	return b.Conn.Close()
}

// exchange relays one request and its answer. It reports whether another request may follow, and why the origin did
// not answer.
func (b *bridge) exchange(in *bufio.Reader) (again bool, failure error) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return false, nil // the relay has closed the connection
	}
	var sent *sentBody
	if r.Body != http.NoBody {
		sent = &sentBody{Reader: r.Body, sized: r.ContentLength >= 0, bridge: b, closed: make(chan struct{})}
		r.Body, r.GetBody = sent, sent.again
		if r.Trailer == nil && r.ContentLength < 0 {
			r.Trailer = http.Header{} // for unannounced trailers
		}
	}
	r.URL.Scheme = b.p.scheme
	// Without Opaque, the transport would encode the decoded path again.
	r.URL.Opaque, _, _ = strings.Cut(r.RequestURI, "?")
	if strings.HasPrefix(r.URL.Opaque, "//") {
		r.URL.Opaque = "//" + r.Host + r.URL.Opaque
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = nil // keeps the transport from adding its own
	}
	resp, err := b.roundTrip(r)
	if err != nil {
		return false, err
	}
	body := resp.Body
	err = b.answer(resp)
	_ = body.Close() // after the whole answer, the origin may accept no more of the request's body
	if err != nil || sent == nil {
		return err == nil, err
	}
	<-sent.closed // the next request begins after the body
	return !sent.cut, nil
}

// Bounds of interim answers that wait until the relay has read the earlier ones.
const (
	maxInterims = 4
	maxInterim  = 64 << 10 // bytes of one
)

var errInterim = errors.New("http1: the client does not read interim answers")

// roundTrip sends r, and relays interim answers while it waits for the final one. The transport does not wait for the
// relay, because all other requests of an HTTP/2 connection would wait with it.
func (b *bridge) roundTrip(r *http.Request) (resp *http.Response, err error) {
	interims, ended := make(chan []byte, maxInterims), make(chan struct{})
	trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, header textproto.MIMEHeader) error {
		if head := headOf(status, http.Header(header)); len(head) <= maxInterim {
			select {
			case interims <- head:
				return nil
			default:
			}
		}
		return errInterim
	}}
	go func() {
		defer close(ended)
		resp, err = b.p.RoundTrip(r.WithContext(httptrace.WithClientTrace(b.ctx, trace)))
	}()
	for waits := true; waits || len(interims) > 0; {
		select {
		case head := <-interims:
			_, _ = b.far.Write(head) // the next write returns the same error
		case <-ended:
			waits, ended = false, nil
		}
	}
	return resp, err
}

// headOf returns the head of an answer without a body.
func headOf(status int, header http.Header) []byte {
	head := bytes.NewBuffer(appendStatus(nil, status))
	_ = header.Write(head)
	head.WriteString("\r\n")
	return head.Bytes()
}

// answer writes resp as HTTP/1.1.
func (b *bridge) answer(resp *http.Response) error {
	if IsBodiless(resp.StatusCode) { // in HTTP/2, even such an answer may have a body, if only an empty one
		_, err := b.far.Write(headOf(resp.StatusCode, resp.Header))
		return err
	}
	resp.ProtoMajor, resp.ProtoMinor = 1, 1
	if 0 <= resp.ContentLength && resp.ContentLength <= largeBuffer {
		body, err := io.ReadAll(resp.Body) // trailers are known only at its end
		if err != nil {
			return err
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	if resp.ContentLength < 0 || len(resp.Trailer) > 0 { // HTTP/2 allows trailers after a sized body
		resp.ContentLength, resp.TransferEncoding = -1, []string{"chunked"}
	}
	if resp.Trailer == nil {
		resp.Trailer = http.Header{} // for unannounced HTTP/2 trailers
	}
	resp.Body = &flushingBody{resp.Body, b.out}
	if err := resp.Write(struct{ io.Writer }{b.out}); err != nil { // hides ReadFrom, which does not flush
		return err
	}
	return b.out.Flush()
}

// A flushingBody is an answer's body that flushes out before each read from the origin.
type flushingBody struct {
	io.ReadCloser
	out *bufio.Writer
}

func (f *flushingBody) Read(p []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	return f.ReadCloser.Read(p)
}

// A sentBody is a request's body, as the transport reads it. The transport may read it even after the answer, until it
// calls Close. An HTTP/2 transport may call Close during Read.
type sentBody struct {
	io.Reader
	sized  bool        // its length is known
	bridge *bridge     // reads from its far end
	begun  atomic.Bool // Read or Close was called
	whole  atomic.Bool // it was read to its end
	cut    bool        // Close ended Read, if that was running: no more can be read
	closed chan struct{}
	once   sync.Once
}

// again returns s for a transport that has not used it. Otherwise the Call must send the request again.
func (s *sentBody) again() (io.ReadCloser, error) {
	if s.begun.Load() {
		return nil, errUnsent
	}
	return s, nil
}

func (s *sentBody) Read(p []byte) (int, error) {
	s.begun.Store(true)
	n, err := s.Reader.Read(p)
	switch {
	case err == io.EOF:
		s.whole.Store(true)
	case !errors.Is(err, os.ErrDeadlineExceeded):
	case !s.bridge.halved.Load(): // set by Close
		err = errUnsent
	case s.sized:
		err = io.EOF
	default:
		select {
		case <-s.closed:
		case <-s.bridge.ctx.Done():
		}
		err = errUnsent
	}
	return n, err
}

// Close ends a Read that waits for the client: the transport may wait for that Read before it reports that the origin
// has ended the exchange. Unlike Close of an *http.Request's body, it does not read the rest.
func (s *sentBody) Close() error {
	s.begun.Store(true)
	s.once.Do(func() {
		if s.cut = !s.whole.Load(); s.cut {
			_ = s.bridge.far.SetReadDeadline(conns.Past)
		}
		close(s.closed)
	})
	return nil
}
