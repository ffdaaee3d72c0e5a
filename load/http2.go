package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// An http2Conn is an HTTP/2 or HTTP/3 connection to one target, replaced when it ends and shared by several streams.
type http2Conn struct {
	target    int
	streams   int // number of streams that share it
	transport http.RoundTripper
	sent      atomic.Int64 // number of requests
}

func newHTTP2(r *run, target int, random *rand.Rand) *http2Conn {
	if target < 0 {
		target = random.IntN(len(r.o.Targets))
	}
	t := &r.o.Targets[target]
	if r.o.HTTP3 {
		dial := func(ctx context.Context, _ string, _ *tls.Config, config *quic.Config) (*quic.Conn, error) {
			return r.dialHTTP3(ctx, t, config)
		}
		transport := &http3.Transport{Dial: dial, DisableCompression: true}
		return &http2Conn{target: target, transport: transport}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := r.dial(ctx, t, netip.Addr{})
		if err != nil {
			return nil, &connectError{err}
		}
		return nc, nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http2Conn{target: target, transport: &http.Transport{
		DialContext: dial, DialTLSContext: dial, MaxConnsPerHost: 1, DisableCompression: true, Protocols: protocols,
	}}
}

// dialHTTP3 opens a connection to t.
func (r *run) dialHTTP3(ctx context.Context, t *Target, config *quic.Config) (*quic.Conn, error) {
	secure := r.tlsOf(t)
	secure.NextProtos = []string{http3.NextProtoH3}
	qc, err := quic.DialAddr(ctx, t.Addr.String(), secure, config)
	if err != nil {
		return nil, &connectError{err}
	}
	r.opened.Add(1)
	return qc, nil
}

// maxTries is the maximum number of connections on which a request is tried.
const maxTries = 3

var errNotAccepted = errors.New("load: connections end before they accept a request")

// roundTrip sends c's request and reads the answer.
func (h *http2Conn) roundTrip(c *conn) error {
	r := c.run
	ctx, cancel := context.WithTimeout(r.cut, r.o.Timeout)
	defer cancel()
	// The transport retries as long as connections end before they accept the request.
	tries := 0
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) {
		if tries++; tries > maxTries {
			cancel()
		}
	}})
	t, look := &r.o.Targets[h.target], c.request.Look
	host, target := look.at(t)
	req := (&http.Request{
		Method: look.Method, Host: host, Header: http.Header{"User-Agent": nil}, ProtoMajor: 2,
		// Send the target as given, even if it is not a valid URL.
		URL: &url.URL{Scheme: "http", Host: t.Name, Opaque: "//" + host + target},
	}).WithContext(ctx)
	if t.TLS {
		req.URL.Scheme = "https"
	}
	if body := r.o.bodyOf(look.Method); len(body) > 0 {
		req.ContentLength = int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	for _, h := range r.o.header(&c.request) {
		req.Header.Add(h[0], h[1])
	}
	if n := int64(r.o.KeepAlive); n > 0 && h.sent.Add(1)%n == 0 {
		req.Close = true
	}
	resp, err := h.transport.RoundTrip(req)
	switch {
	case err != nil && tries > maxTries:
		return errNotAccepted
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	a := &c.answer
	a.begin(uint16(resp.StatusCode))
	for name, values := range resp.Header {
		for _, v := range values {
			a.notice([]byte(name), []byte(v), c.wire.nodeHeader)
		}
	}
	if c.wire.expects(resp.ContentLength) {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		a.compare(body, c.wire.bodies)
	} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	c.take()
	return nil
}
