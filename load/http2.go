package load

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// An http2Conn is an HTTP/2 connection to one target at a time, which several streams share.
type http2Conn struct {
	run       *run
	target    int
	transport *http.Transport
	sent      atomic.Int64
}

func newHTTP2(r *run, target int, random *rand.Rand) *http2Conn {
	if target < 0 {
		target = random.IntN(len(r.o.Targets))
	}
	h := &http2Conn{run: r, target: target}
	t := &r.o.Targets[target]
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	h.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := r.o.Dial(ctx, t)
			if err == nil {
				r.opened.Add(1)
			}
			return nc, err
		},
		TLSClientConfig:    r.tlsOf(t),
		MaxConnsPerHost:    1,
		DisableCompression: true,
		Protocols:          protocols,
	}
	return h
}

// roundTrip sends c's request and takes in the answer.
func (h *http2Conn) roundTrip(c *conn) error {
	r := h.run
	ctx, cancel := context.WithTimeout(context.Background(), r.o.Timeout)
	defer cancel()
	t, look := &r.o.Targets[h.target], c.request.Look
	scheme := map[bool]string{false: "http://", true: "https://"}[t.TLS]
	req, err := http.NewRequestWithContext(ctx, look.Method, scheme+t.Name+cmp.Or(look.Target, t.Path), nil)
	if err != nil {
		return err
	}
	req.Host = look.Host
	req.Header["User-Agent"] = []string{look.Agent}
	if look.Agent == "" {
		req.Header["User-Agent"] = nil
	}
	lines := r.o.Identity.appendHeader(bytes.Clone(r.fixed), &c.request)
	for line := range strings.SplitSeq(string(lines), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			req.Header.Add(name, value)
		}
	}
	if n := int64(r.o.KeepAlive); n > 0 && h.sent.Add(1)%n == 0 {
		req.Close = true
	}
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a := &c.answer
	*a = answer{status: uint16(resp.StatusCode), remaining: -1, node: a.node[:0]}
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
