package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/edgelimit/edge/pop/limit"
)

// A loggedWriter remembers what the access log says.
type loggedWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *loggedWriter) WriteHeader(status int) {
	if w.status < 200 {
		w.status = status
	}
	if status != statusClientClosed {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *loggedWriter) Write(p []byte) (int, error) {
	if w.status < 200 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController find what the inner writer can.
func (w *loggedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// logAccess writes the line of a request that is over.
func (p *Proxy) logAccess(r *http.Request, x *exchange, w *loggedWriter, start time.Time) {
	p.logRequest(x, start, requestLine{r.Method, r.Host, r.RequestURI, r.Proto}, w.status, w.bytes)
}

// A requestLine is what the access log says of a request.
type requestLine struct{ method, host, uri, proto string }

// logRequest writes a line of the access log.
func (p *Proxy) logRequest(x *exchange, start time.Time, r requestLine, status int, bytes int64) {
	attrs := []slog.Attr{
		slog.String("client", x.client.String()),
		slog.String("method", r.method),
		slog.String("host", r.host),
		slog.String("uri", r.uri),
		slog.String("proto", r.proto),
		slog.Int("status", status),
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
