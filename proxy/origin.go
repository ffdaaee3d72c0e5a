package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// Origins are the origins by host, the default one, and the one for ACME challenges. All of them are optional.
type Origins struct {
	Default, ACME *Origin
	ByHost        map[string]*Origin // by canonical host
}

// Close closes the idle connections to all origins.
func (o Origins) Close() {
	for _, origin := range o.ByHost {
		origin.Close()
	}
	for _, origin := range []*Origin{o.Default, o.ACME} {
		if origin != nil {
			origin.Close()
		}
	}
}

// An Origin is a server behind the node.
type Origin struct {
	scheme, host string
	relayed      *http1.Origin

	failures lograte.Limiter
}

// OriginOptions configures an Origin. The zero value is usable.
type OriginOptions struct {
	// Timeout bounds the time until the origin begins its answer. If zero, 60 s.
	Timeout time.Duration

	// ConnectTimeout bounds the time to connect. If zero, 5 s.
	ConnectTimeout time.Duration

	// Dial connects to the origin, unless its scheme is https. If nil, it connects over the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewOrigin returns the origin at text: http://HOST[:PORT], https://HOST[:PORT] (HTTP/1.1 or HTTP/2), or
// h2c://HOST[:PORT] (HTTP/2 without TLS).
func NewOrigin(text string, o OriginOptions) (*Origin, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return nil, fmt.Errorf("proxy: origin %q must be http://HOST:PORT, https://HOST or h2c://HOST:PORT", text)
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16); err != nil || port == 0 {
		return nil, fmt.Errorf("proxy: origin %q has an invalid port: must be from 1 to 65535", text)
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("proxy: origin %q must have only a scheme, host and port; requests keep their own path", text)
	}
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	dialer := &net.Dialer{Timeout: cmp.Or(o.ConnectTimeout, 5*time.Second), KeepAlive: 30 * time.Second}
	origin := &Origin{scheme: u.Scheme, host: u.Host}
	if o.Dial == nil {
		o.Dial = dialer.DialContext
	}
	plain := func(...string) (net.Conn, error) {
		return o.Dial(context.Background(), "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")))
	}
	secure := func(protocols ...string) (net.Conn, error) {
		d := tls.Dialer{NetDialer: dialer, Config: &tls.Config{NextProtos: protocols}}
		return d.Dial("tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	}
	switch u.Scheme {
	case "http":
		origin.relayed = http1.NewOrigin(func() (net.Conn, error) { return plain() }, o.Timeout)
	case "https":
		origin.relayed = http1.NewHTTP2Origin("https", secure, o.Timeout)
	case "h2c":
		origin.scheme = "http"
		origin.relayed = http1.NewHTTP2Origin("http", plain, o.Timeout)
	default:
		return nil, fmt.Errorf("proxy: origin %q has an unsupported scheme %q: use http, https or h2c", text, u.Scheme)
	}
	return origin, nil
}

// String returns the origin's scheme, host and port.
func (o *Origin) String() string { return o.scheme + "://" + o.host }

// logFailure logs a failure of o, at most once a second: an origin that is down must not fill the disk.
func (o *Origin) logFailure(logger *slog.Logger, err error) {
	o.failures.Log(logger, slog.LevelWarn, time.Now(), "origin failed", "origin", o, "err", err)
}

// Close closes idle connections.
func (o *Origin) Close() { o.relayed.Close() }

// CanonicalHost returns the key of host in Origins.ByHost.
func CanonicalHost(host string) string {
	r := rule.Request{Host: host}
	r.Canonicalize(rule.ClientPrefix{})
	return r.Host
}
