package http1

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bridge returns a dial function for origins that need t, such as those that use HTTP/2. Relays do not notice: a connection
// is a pipe to a goroutine that reads requests and writes answers in HTTP/1.1. scheme and host are the origin's.
func Bridge(t http.RoundTripper, scheme, host string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		ctx, cancel := context.WithCancel(context.Background())
		near, far := net.Pipe()
		c := &bridged{Conn: near, t: t, cancel: cancel, far: far}
		b := &bridge{t: t, scheme: scheme, host: host, ctx: ctx, near: c, far: far, in: bufio.NewReader(far), out: bufio.NewWriter(far)}
		go func() {
			defer cancel()
			defer far.Close()
			for {
				again, err := b.exchange()
				if err != nil {
					c.failure.Store(&err)
				}
				if !again {
					return
				}
			}
		}()
		return c, nil
	}
}

// A bridged is the relay's end of a bridge's pipe.
type bridged struct {
	net.Conn
	t       http.RoundTripper
	cancel  context.CancelFunc
	far     net.Conn
	halved  atomic.Bool           // CloseWrite was called
	failure atomic.Pointer[error] // why the origin did not answer
}

// Read reads the answer. If it ends too early, the error says why.
func (c *bridged) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if failure := c.failure.Load(); err == io.EOF && failure != nil {
		err = bridgeError{*failure}
	}
	return n, err
}

// A bridgeError is an error of a bridge's transport. It hides deadlines of the transport: the relay would take them for its own.
type bridgeError struct{ err error }

func (e bridgeError) Error() string   { return e.err.Error() }
func (e bridgeError) Timeout() bool   { return IsTimeout(e.err) }
func (e bridgeError) Temporary() bool { return false }

// open reports whether the origin still speaks HTTP/2.
func (c *bridged) open() bool {
	p, ok := c.t.(*pool)
	return !ok || p.last() == protoHTTP2
}

// CloseWrite ends the request's body, even if it is incomplete: HTTP/2 has END_STREAM for that. An HTTP/1.1 transport would
// abort the request, and lose the answer of an origin that has seen enough. So there it only returns an error.
func (c *bridged) CloseWrite() error {
	if p, ok := c.t.(*pool); !ok || p.last() != protoHTTP2 {
		return errors.ErrUnsupported
	}
	c.halved.Store(true)
	return c.far.SetReadDeadline(past)
}

// Close also ends the current exchange.
func (c *bridged) Close() error {
	c.cancel()
	return c.Conn.Close()
}

// A bridge serves the other end of the pipe.
type bridge struct {
	t            http.RoundTripper
	scheme, host string
	ctx          context.Context
	near         *bridged
	far          net.Conn
	in           *bufio.Reader
	out          *bufio.Writer
}

// exchange relays one request and its answer. It reports whether another request may follow, and
// why the origin did not answer.
func (b *bridge) exchange() (again bool, failure error) {
	r, err := http.ReadRequest(b.in)
	if err != nil {
		return false, nil // the relay has closed the connection
	}
	var sent *sentBody
	if r.Body != http.NoBody {
		repeatable := isRepeatable(r.Method)
		sent = &sentBody{Reader: r.Body, near: b.near, closed: make(chan struct{}), lost: !repeatable}
		if r.Body = sent; repeatable {
			r.GetBody = func() (io.ReadCloser, error) {
				body, err := sent.again()
				if err == nil {
					sent = body
				}
				return body, err
			}
		}
		if r.Trailer == nil && r.ContentLength < 0 {
			r.Trailer = http.Header{} // for unannounced trailers
		}
	}
	r.URL.Scheme, r.URL.Host = b.scheme, b.host
	if path, _, _ := strings.Cut(r.RequestURI, "?"); path != r.URL.EscapedPath() { // or the transport would encode it again, from the decoded path
		if r.URL.Opaque = path; strings.HasPrefix(path, "//") {
			r.URL.Opaque = "//" + cmp.Or(r.Host, b.host) + path
		}
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = nil // or the transport would add its own
	}
	interim := &interims{to: b.far}
	trace := &httptrace.ClientTrace{Got1xxResponse: interim.add}
	resp, err := b.t.RoundTrip(r.WithContext(httptrace.WithClientTrace(b.ctx, trace)))
	interim.end()
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if stream, ok := resp.Body.(io.ReadWriter); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		b.tunnel(resp, stream)
		return false, nil
	}
	if err := b.answer(resp); err != nil {
		return false, err
	}
	if sent == nil {
		return true, nil
	}
	<-sent.closed // the next request begins after the body
	return sent.whole.Load(), nil
}

// writeHead writes the head of an interim answer, or of a switch to another protocol.
func writeHead(w io.Writer, status int, header http.Header) error {
	var head bytes.Buffer
	head.Write(appendStatus(nil, status))
	_ = header.Write(&head)
	head.WriteString("\r\n")
	_, err := w.Write(head.Bytes())
	return err
}

// An interims writes the interim answers of an exchange in its own goroutine. If the transport waited for the relay, so
// would all other requests of an HTTP/2 connection.
type interims struct {
	to      io.Writer
	writing sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	waiting bytes.Buffer
	busy    bool // write runs
	ended   bool
}

// maxInterim is the maximum size of interim answers that wait before another one, in bytes.
const maxInterim = 64 << 10

var errInterim = errors.New("http1: the client does not read interim answers")

// add writes an answer, unless too many are waiting.
func (i *interims) add(status int, header textproto.MIMEHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended || i.waiting.Len() > maxInterim {
		return errInterim
	}
	if !i.busy {
		i.busy = true
		i.writing.Go(i.write)
	}
	return writeHead(&i.waiting, status, http.Header(header))
}

func (i *interims) write() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for i.waiting.Len() > 0 {
		heads := slices.Clone(i.waiting.Bytes())
		i.waiting.Reset()
		i.mu.Unlock()
		_, _ = i.to.Write(heads) // the next write returns the same error
		i.mu.Lock()
	}
	i.busy = false
}

// end waits until all answers are written.
func (i *interims) end() {
	i.mu.Lock()
	i.ended = true
	i.mu.Unlock()
	i.writing.Wait()
}

// answer writes resp as HTTP/1.1.
func (b *bridge) answer(resp *http.Response) error {
	resp.ProtoMajor, resp.ProtoMinor = 1, 1
	if n := resp.ContentLength; 0 <= n && n <= largeBuffer && resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusNotModified {
		body, err := io.ReadAll(resp.Body) // only its end tells whether trailers follow
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
	resp.Body = &flushing{resp.Body, b.out}
	if err := resp.Write(struct{ io.Writer }{b.out}); err != nil { // hides ReadFrom, which does not flush
		return err
	}
	return b.out.Flush()
}

// tunnel copies in both directions until one ends.
func (b *bridge) tunnel(resp *http.Response, stream io.ReadWriter) {
	if writeHead(b.far, resp.StatusCode, resp.Header) != nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = io.Copy(stream, b.in)
		_ = resp.Body.Close()
	})
	_, _ = io.Copy(b.far, stream)
	_ = b.far.Close()
}

// A flushing is an answer's body that flushes out before each read from the origin.
type flushing struct {
	io.ReadCloser
	out *bufio.Writer
}

func (f *flushing) Read(p []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	return f.ReadCloser.Read(p)
}

// A sentBody is a request's body. The transport may read it even after the answer, until it calls
// Close. An HTTP/2 transport may call Close during Read.
type sentBody struct {
	io.Reader
	near   *bridged    // the other end of what Reader reads
	whole  atomic.Bool // read to its end
	closed chan struct{}
	once   sync.Once

	kept []byte // what was read so far, at most largeBuffer bytes, to send it again
	lost bool   // kept is not all that was read
}

var errSent = errors.New("http1: a part of the body was sent and is not kept")

// again returns a body that begins again, once the transport no longer reads s.
func (s *sentBody) again() (*sentBody, error) {
	if s.lost || s.near.halved.Load() {
		return nil, errSent
	}
	_ = s.near.far.SetReadDeadline(time.Time{})
	body := io.MultiReader(bytes.NewReader(s.kept), s.Reader)
	return &sentBody{Reader: body, near: s.near, closed: make(chan struct{})}, nil
}

func (s *sentBody) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	switch {
	case err == io.EOF:
		s.whole.Store(true)
	case errors.Is(err, os.ErrDeadlineExceeded) && s.near.halved.Load():
		err = io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded): // set by Close
		err = errSent
	}
	if s.lost = s.lost || len(s.kept)+n > largeBuffer; !s.lost {
		s.kept = append(s.kept, p[:n]...)
	}
	return n, err
}

// Close does not read the rest, unlike that of an *http.Request's body. It ends a Read that waits for the client: the
// transport may wait for that before it reports that the origin has ended the exchange.
func (s *sentBody) Close() error {
	s.once.Do(func() {
		if !s.whole.Load() {
			_ = s.near.far.SetReadDeadline(past)
		}
		close(s.closed)
	})
	return nil
}
