package proxy

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// Origins are the origins by host, and the default.
type Origins struct {
	Default *Origin
	ByHost  map[string]*Origin // by canonical host
}

func (o Origins) of(host string) *Origin {
	if origin, ok := o.ByHost[host]; ok {
		return origin
	}
	return o.Default
}

// Close closes the idle connections to all origins.
func (o Origins) Close() {
	if o.Default != nil {
		o.Default.Close()
	}
	for _, origin := range o.ByHost {
		origin.Close()
	}
}

// An Origin is a server behind the node.
type Origin struct {
	scheme, host string
	transport    http.RoundTripper
	relayed      *http1.Origin

	failures lograte.Limiter
}

// OriginOptions configures an Origin. The zero value is usable.
type OriginOptions struct {
	// Timeout is how long the origin may take to begin its answer. If zero, 60 s.
	Timeout time.Duration

	// ConnectTimeout bounds connecting. If zero, 5 s.
	ConnectTimeout time.Duration

	// Transport sends the requests. If nil, a transport for the origin's scheme does.
	Transport http.RoundTripper
}

// NewOrigin returns the origin at text: http://HOST[:PORT], https://HOST[:PORT] (HTTP/1.1 or HTTP/2), or
// h2c://HOST[:PORT] (HTTP/2 without TLS).
func NewOrigin(text string, o OriginOptions) (*Origin, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return nil, fmt.Errorf("proxy: origin %q must be http://HOST:PORT, https://HOST or h2c://HOST:PORT", text)
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("proxy: origin %q must have only a scheme, host and port; requests keep their own path", text)
	}
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	protocols := new(http.Protocols)
	origin := &Origin{scheme: u.Scheme, host: u.Host, transport: o.Transport}
	switch u.Scheme {
	case "http":
		protocols.SetHTTP1(true)
	case "https":
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
		origin.scheme = "http"
	default:
		return nil, fmt.Errorf("proxy: origin %q has an unsupported scheme %q: use http, https or h2c", text, u.Scheme)
	}
	if origin.transport == nil {
		origin.transport = newTransport(protocols, o)
	}
	origin.relayed = newRelayed(origin, u, o)
	return origin, nil
}

// newRelayed returns what relays requests to origin.
func newRelayed(origin *Origin, u *url.URL, o OriginOptions) *http1.Origin {
	if o.Transport != nil {
		return http1.NewOrigin(http1.Bridge(o.Transport, origin.scheme, origin.host), o.Timeout)
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[origin.scheme])
	}
	connect := func(protocols ...string) (net.Conn, error) {
		if u.Scheme == "https" {
			d := tls.Dialer{NetDialer: o.dialer(), Config: &tls.Config{NextProtos: protocols}}
			return d.Dial("tcp", addr)
		}
		return o.dialer().Dial("tcp", addr)
	}
	if u.Scheme == "http" {
		return http1.NewOrigin(func() (net.Conn, error) { return connect() }, o.Timeout)
	}
	return http1.NewHTTP2Origin(origin.scheme, connect, o.Timeout)
}

func (o *OriginOptions) dialer() *net.Dialer {
	return &net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second}
}

func newTransport(protocols *http.Protocols, o OriginOptions) *http.Transport {
	return &http.Transport{
		Protocols:             protocols,
		DialContext:           o.dialer().DialContext,
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ResponseHeaderTimeout: o.Timeout,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       http1.IdleTimeout,
		MaxIdleConnsPerHost:   http1.IdleConnections,
		DisableCompression:    true, // answers pass as they are
		HTTP2:                 &http.HTTP2Config{MaxReceiveBufferPerStream: http1.OriginWindow},
	}
}

// String returns the origin's scheme, host and port.
func (o *Origin) String() string { return o.scheme + "://" + o.host }

// logFailure logs a failure of o, at most once a second: an origin that is down must not fill the disk.
func (o *Origin) logFailure(logger *slog.Logger, err error) {
	o.failures.Log(logger, slog.LevelWarn, time.Now(), "origin failed", "origin", o, "err", err)
}

// Close closes idle connections.
func (o *Origin) Close() {
	if t, ok := o.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
	o.relayed.Close()
}

// CanonicalHost returns the key of host in Origins.ByHost.
func CanonicalHost(host string) string {
	r := rule.Request{Host: host}
	r.Canonicalize(rule.ClientPrefix{})
	return r.Host
}
