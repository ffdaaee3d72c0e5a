package pop

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// withProxyProtocol lets trusted proxies name the client that they speak for, if the PROXY protocol is enabled.
// A PROXY header from any other address is not parsed, so its request is malformed.
func (n *Node) withProxyProtocol(ln net.Listener) net.Listener {
	if !n.o.ProxyProtocol {
		return ln
	}
	return proxiedListener{&proxyproto.Listener{
		Listener:          ln,
		ReadHeaderTimeout: n.o.ReadHeaderTimeout,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			tcp, ok := o.Upstream.(*net.TCPAddr)
			if ok && n.proxy.Trusts(tcp.AddrPort()) {
				n.headers.opened(n.notices)
				return proxyproto.USE, nil
			}
			return proxyproto.SKIP, nil
		},
		ValidateHeader: n.withoutUnix,
	}}
}

type proxiedListener struct{ net.Listener }

func (l proxiedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if head, ok := conn.(*proxyproto.Conn); ok {
		if tcp, ok := head.TCPConn(); ok {
			return &proxiedConn{tcp, head}, err
		}
	}
	return conn, err
}

// A proxiedConn is a connection that may begin with a PROXY header. It has all methods of a TCP connection. Data
// that arrives with the header is returned by the first Read.
type proxiedConn struct {
	*net.TCPConn
	head *proxyproto.Conn
}

func (p *proxiedConn) Read(b []byte) (int, error)               { return p.head.Read(b) }
func (p *proxiedConn) LocalAddr() net.Addr                      { return p.head.LocalAddr() }
func (p *proxiedConn) RemoteAddr() net.Addr                     { return p.head.RemoteAddr() }
func (p *proxiedConn) SetDeadline(t time.Time) error            { return p.head.SetDeadline(t) }
func (p *proxiedConn) SetReadDeadline(t time.Time) error        { return p.head.SetReadDeadline(t) }
func (p *proxiedConn) WriteTo(w io.Writer) (n int64, err error) { return p.head.WriteTo(w) }

// withoutUnix treats a header with UNIX addresses as missing: it does not distinguish clients, but the proxy's
// X-Forwarded-For, which is used instead, may.
func (n *Node) withoutUnix(h *proxyproto.Header) error {
	n.headers.got.Add(1)
	if !h.TransportProtocol.IsUnix() {
		return nil
	}
	h.Command = proxyproto.LOCAL
	n.headers.unix.Inc()
	n.headers.unixLogged.Do(func() {
		n.o.Logger.Warn("a trusted proxy sends PROXY headers with UNIX addresses, so its clients can be distinguished only by X-Forwarded-For: make it accept clients over TCP, or send X-Forwarded-For")
	})
	return nil
}

// headersJudged is the number of connections of trusted proxies after which it is a problem if none had a header.
const headersJudged = 50

// headers counts PROXY headers, and connections that should have one.
type headers struct {
	expected, got atomic.Int64
	unix          prometheus.Counter
	unixLogged    sync.Once
}

func newHeaders(reg prometheus.Registerer) *headers {
	return &headers{unix: promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "edge_proxy_protocol_unix_total",
		Help: "Connections whose PROXY header has UNIX addresses, which do not identify the client.",
	})}
}

// opened records a connection from a trusted proxy. Health checks of a proxy may have no header, but it is a
// problem if no connection has one.
func (h *headers) opened(to *notices) {
	if h.expected.Add(1) < headersJudged {
		return
	}
	h.expected.Store(0)
	text := ""
	if h.got.Swap(0) == 0 {
		text = "trusted proxies send no PROXY header although proxy_protocol is set, so their clients can be distinguished only by X-Forwarded-For"
	}
	to.note(problemNoHeader, text)
}
