package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
)

// Bridge returns an [OriginOptions].Dial for origins that t has to speak to, because they need TLS
// or HTTP/2. To a relay such an origin looks like any other: its connection is a pipe, behind which
// a goroutine reads requests and writes answers as HTTP/1.1. scheme and host tell t the origin.
func Bridge(t http.RoundTripper, scheme, host string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		ctx, cancel := context.WithCancel(context.Background())
		near, far := net.Pipe()
		c := &bridged{Conn: near, cancel: cancel}
		b := &bridge{t: t, scheme: scheme, host: host, ctx: ctx, far: far, in: bufio.NewReader(far), out: bufio.NewWriter(far)}
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

// A bridged is the relay's end of a bridge.
type bridged struct {
	net.Conn
	cancel  context.CancelFunc
	failure atomic.Pointer[error] // why there is no answer
}

// Read reads the answer. Where it ends too early, the error says why.
func (c *bridged) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if failure := c.failure.Load(); err == io.EOF && failure != nil {
		err = *failure
	}
	return n, err
}

// Close ends the exchange that is under way, too.
func (c *bridged) Close() error {
	c.cancel()
	return c.Conn.Close()
}

// A bridge is the origin's end.
type bridge struct {
	t            http.RoundTripper
	scheme, host string
	ctx          context.Context
	far          net.Conn
	in           *bufio.Reader
	out          *bufio.Writer
}

// exchange passes one request to the origin and its answer back. It reports whether another one may
// follow, and why the origin did not answer.
func (b *bridge) exchange() (again bool, failure error) {
	r, err := http.ReadRequest(b.in)
	if err != nil {
		return false, nil // the relay has closed the connection
	}
	sent := &sentBody{ReadCloser: r.Body, closed: make(chan struct{})}
	if r.Body == http.NoBody {
		sent.whole, sent.closed = true, nil
	} else {
		r.Body = sent
	}
	r.URL.Scheme, r.URL.Host = b.scheme, b.host
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = nil // or the transport would add its own
	}
	trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, header textproto.MIMEHeader) error {
		return b.head(status, http.Header(header))
	}}
	resp, err := b.t.RoundTrip(r.WithContext(httptrace.WithClientTrace(b.ctx, trace)))
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if stream, ok := resp.Body.(io.ReadWriter); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		b.tunnel(resp, stream)
		return false, nil
	}
	if err := b.answer(resp); err != nil {
		return false, nil
	}
	if sent.closed != nil {
		<-sent.closed // the next request begins behind the body
	}
	return sent.whole, nil
}

// head writes the head of an answer that ends there, or is followed by another protocol.
func (b *bridge) head(status int, header http.Header) error {
	b.out.Write(appendStatus(nil, status))
	_ = header.Write(b.out)
	_, _ = b.out.WriteString("\r\n")
	return b.out.Flush()
}

// answer writes an answer as one of HTTP/1.1.
func (b *bridge) answer(resp *http.Response) error {
	resp.ProtoMajor, resp.ProtoMinor = 1, 1
	if resp.ContentLength < 0 || len(resp.Trailer) > 0 { // HTTP/2 has trailers behind a length, too
		resp.ContentLength, resp.TransferEncoding = -1, []string{"chunked"}
	}
	if resp.Trailer == nil {
		resp.Trailer = http.Header{} // HTTP/2 puts trailers here that are not announced
	}
	resp.Body = &flushing{resp.Body, b.out}
	if err := resp.Write(struct{ io.Writer }{b.out}); err != nil { // ReadFrom would forbid flushing
		return err
	}
	return b.out.Flush()
}

// tunnel copies in both directions until one ends.
func (b *bridge) tunnel(resp *http.Response, stream io.ReadWriter) {
	if b.head(resp.StatusCode, resp.Header) != nil {
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

// A flushing is an answer's body. What was written is flushed before the origin is waited for.
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

// A sentBody is a request's body, which the transport may read until it closes it: also after the
// answer.
type sentBody struct {
	io.ReadCloser
	whole  bool // read to its end; set before closed
	closed chan struct{}
	once   sync.Once
}

func (s *sentBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err == io.EOF {
		s.whole = true
	}
	return n, err
}

// Close does not read the rest, as the inner body's would.
func (s *sentBody) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
