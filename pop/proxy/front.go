package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/edgelimit/edge/pop/conns"
	"github.com/edgelimit/edge/pop/http1"
)

// A Front accepts client connections and hands each to the server of its protocol. It watches what
// servers of net/http read and write, to notice invalid requests that they answer themselves: these
// count, and mitigated clients get the same refusal as for other requests.
type Front struct {
	// HTTP1 and HTTP2 are the listeners of servers of net/http. Closing one closes the other and the
	// underlying listener.
	HTTP1, HTTP2 net.Listener

	own1, own2    func(net.Conn, http1.Start) // replace the servers of HTTP1 and HTTP2; may be nil
	http1, http2  chan net.Conn
	p             *Proxy
	ln            net.Listener
	closeListener func() error // closes ln once
	headerTimeout time.Duration
	done          chan struct{} // closed when the listeners are

	mu    sync.Mutex
	conns map[net.Conn]bool // whose protocol is not known yet; nil when done is closed
}

// Front returns a Front for the connections of ln, which may use TLS. headerTimeout bounds the TLS
// handshake and the header of the first request. own1 and own2 serve the connections of HTTP/1 and HTTP/2,
// and return at once. If they are nil, the servers of HTTP1 and HTTP2 do. Run runs the Front.
func (p *Proxy) Front(ln net.Listener, headerTimeout time.Duration, own1, own2 func(net.Conn, http1.Start)) *Front {
	f := &Front{
		own1: own1, own2: own2,
		http1: make(chan net.Conn), http2: make(chan net.Conn), p: p, ln: ln, closeListener: sync.OnceValue(ln.Close),
		headerTimeout: headerTimeout, done: make(chan struct{}), conns: map[net.Conn]bool{},
	}
	f.HTTP1, f.HTTP2 = &frontListener{f, f.http1}, &frontListener{f, f.http2}
	return f
}

// A frontListener is the listener of a server of net/http.
type frontListener struct {
	*Front
	conns chan net.Conn
}

func (l *frontListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *frontListener) Addr() net.Addr { return l.ln.Addr() }

// Close closes ln and the connections whose protocol is not known yet.
func (f *Front) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		return nil
	}
	close(f.done)
	for c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
	return f.closeListener()
}

// Stop closes ln. Clients of connections that were accepted before have http1.LastMoment to send
// something, so that servers answer them. After that, or when ctx is done, it closes the connections whose
// protocol is not known yet.
func (f *Front) Stop(ctx context.Context) error {
	closed := f.closeListener()
	ctx, cancel := context.WithTimeout(ctx, http1.LastMoment)
	defer cancel()
	select {
	case <-f.done: // by Run
	case <-ctx.Done():
	}
	_ = f.Close()
	return closed
}

// Run accepts connections until the listener is closed. It returns when each has been closed or handed to
// a server.
func (f *Front) Run() {
	var greeting sync.WaitGroup
	for {
		c, err := f.ln.Accept()
		if err != nil {
			break
		}
		if f.add(c) {
			greeting.Go(func() { f.greet(c) })
		}
	}
	greeting.Wait()
	_ = f.Close()
}

// add adds c to f.conns. If f is closed, it closes c and returns false.
func (f *Front) add(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		_ = c.Close()
		return false
	}
	f.conns[c] = true
	return true
}

// greet detects the protocol of nc and hands it to a server.
func (f *Front) greet(nc net.Conn) {
	c := &conn{Conn: nc, front: f, headBy: time.Now().Add(f.headerTimeout), begun: make(chan struct{})}
	c.peer = addrOf(conns.Peer(nc)) // may read a PROXY header
	c.ended = f.p.connections.add(c.peer, !f.p.trusted.Contains(c.peer))
	var to chan<- net.Conn
	if c.ended != nil {
		to = c.open()
	}
	f.mu.Lock()
	delete(f.conns, nc)
	f.mu.Unlock()
	if to == nil {
		_ = c.Close()
		return
	}
	own := f.own1
	if to == f.http2 {
		own = f.own2
	}
	if own != nil {
		own(nc, http1.Start{Since: c.headBy.Add(-f.headerTimeout), Read: c.sniffed, Secure: c.tls != nil, Ended: c.ended})
		return
	}
	select {
	case to <- c:
		select { // while it shuts down, net/http does not answer a first request
		case <-c.begun:
		case <-f.done:
		}
	case <-f.done:
		_ = c.Close()
	}
}

// open detects the protocol and returns the channel of c's server, or nil if there is nothing to serve.
func (c *conn) open() (to chan<- net.Conn) {
	f, nc, http2 := c.front, c.Conn, false
	if secure, ok := nc.(*tls.Conn); ok {
		if !c.handshake(secure) {
			return nil
		}
		c.headBy = time.Now().Add(f.headerTimeout)
		http2 = c.tls.NegotiatedProtocol == "h2"
	} else {
		var err error
		_ = nc.SetReadDeadline(c.headBy)
		if http2, err = c.sniff(); err != nil && len(c.sniffed) == 0 {
			return nil
		}
		f.p.around.open(c.peer, c.sniffed)
		if isForeign(c.sniffed) {
			c.malformed(f.p.o.Now())
			return nil
		}
	}
	_ = nc.SetDeadline(time.Time{})
	if http2 {
		c.frames = &watch{conn: c}
		return f.http2
	}
	return f.http1
}

// handshake does the TLS handshake and reports whether it succeeded.
func (c *conn) handshake(secure *tls.Conn) bool {
	_ = secure.SetDeadline(c.headBy)
	err := secure.HandshakeContext(context.Background())
	if err == nil {
		c.front.p.around.open(c.peer, nil)
		state := secure.ConnectionState()
		c.tls = &state
		return true
	}
	c.front.p.o.Logger.Debug("TLS handshake failed", "err", err)
	var no tls.RecordHeaderError
	if errors.As(err, &no) && no.Conn != nil {
		c.front.p.around.open(c.peer, no.RecordHeader[:])
		switch string(no.RecordHeader[:]) {
		case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
			answer := c.instead([]byte("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"))
			_, _ = no.Conn.Write(answer)
		}
	}
	return false
}

// isForeign reports whether first begins with a request line of another protocol, such as RTSP or SIP, or
// with a broken HTTP/2 preface: three words, of which the last is not a version of HTTP. Such a client
// would not understand an HTTP/1 answer.
func isForeign(first []byte) bool {
	line, _, whole := bytes.Cut(first, []byte("\r\n"))
	last := bytes.LastIndexByte(line, ' ')
	return whole && bytes.Count(line, []byte(" ")) == 2 && !bytes.HasPrefix(bytes.ToUpper(line[last+1:]), []byte("HTTP/"))
}

// preface begins every HTTP/2 connection, and no HTTP/1 connection.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// sniff reads until it knows whether the client speaks HTTP/2. The first Read drains the bytes that arrived
// with a PROXY header: afterwards a server may read the socket itself.
func (c *conn) sniff() (http2 bool, err error) {
	buf := make([]byte, 512)
	for n := 0; n < len(preface); {
		var k int
		k, err = c.Conn.Read(buf[n:])
		n += k
		c.sniffed = buf[:n]
		if known := min(n, len(preface)); string(buf[:known]) != preface[:known] || err != nil {
			return false, err
		}
	}
	return true, nil
}
