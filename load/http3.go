package load

import (
	"context"
	"crypto/tls"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// newHTTP3 returns a transport with a connection of its own to t.
func (r *run) newHTTP3(t *Target) *http3.Transport {
	dial := func(ctx context.Context, _ string, _ *tls.Config, config *quic.Config) (*quic.Conn, error) {
		return r.dialHTTP3(ctx, t, config)
	}
	return &http3.Transport{Dial: dial, DisableCompression: true}
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
