package proxy

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/edgelimit/edge/limit"
)

// A requestLine has the parts of a request that the access log shows.
type requestLine struct{ method, host, uri, proto string }

// logRequest writes a line of the access log.
func (p *Proxy) logRequest(x *arrival, start time.Time, r requestLine, status int, bytes int64) {
	attrs := []slog.Attr{
		slog.String("client", x.client.String()),
		slog.String("method", r.method),
		slog.String("host", r.host),
		slog.String("uri", r.uri),
		slog.String("proto", r.proto),
		slog.Int("status", cmp.Or(x.logged, status)),
		slog.Int64("bytes", bytes),
		slog.Duration("duration", p.o.Now().Sub(start)),
		slog.String("verdict", x.decision.Verdict.String()),
	}
	if x.decision.Rule != nil {
		attrs = append(attrs, slog.String("rule", x.decision.Rule.ID))
	}
	if id := p.o.Limiter.ID(&x.decision, x.client); id != (limit.ID{}) {
		attrs = append(attrs, slog.String("refusal_id", id.String()))
	}
	p.o.AccessLog.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}
