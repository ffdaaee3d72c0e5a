package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"time"
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
	attrs := []slog.Attr{
		slog.String("client", x.client.String()),
		slog.String("method", r.Method),
		slog.String("host", r.Host),
		slog.String("uri", r.RequestURI),
		slog.String("proto", r.Proto),
		slog.Int("status", w.status),
		slog.Int64("bytes", w.bytes),
		slog.Duration("duration", p.o.Now().Sub(start)),
		slog.String("verdict", x.decision.Verdict.String()),
	}
	if x.decision.Rule != nil {
		attrs = append(attrs, slog.String("rule", x.decision.Rule.ID))
	}
	p.o.AccessLog.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}
