package edge

import (
	"net/http"

	"github.com/edgelimit/edge/pop/proxy"
)

// A Decision is what was decided about an HTTP request. Its methods must not be called
// concurrently.
type Decision struct{ a *proxy.Admission }

// Decide decides r, and counts it if it passes. [Limiter.Middleware] does everything that is needed
// around it; use Decide where there is no http.Handler to wrap.
func (l *Limiter) Decide(r *http.Request) Decision { return Decision{l.node.Admit(r)} }

// Refused reports whether the request must not be served. Then Refuse answers it.
func (d Decision) Refused() bool { return d.a.Refused() }

// Refuse answers the request as its rule says. For a rule with the action close it panics with
// [http.ErrAbortHandler], at which net/http closes the connection.
func (d Decision) Refuse(w http.ResponseWriter, r *http.Request) { d.a.Refuse(w, r) }

// Header sets the fields of an answer that tell the client what remains of its quotas.
func (d Decision) Header(header http.Header) { d.a.Sign(header) }

// Answered counts a request that passed for the rules that count by its answer. It must be called
// once at most. Only rules with a cost_header look at header, which may be nil.
func (d Decision) Answered(status int, header http.Header) { d.a.Answered(status, header) }

// Middleware returns a handler that answers requests which the rules refuse, and lets next serve
// the others. Rules that count by the answer see what next writes.
func (l *Limiter) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := l.Decide(r)
		if d.Refused() {
			d.Refuse(w, r)
			return
		}
		d.Header(w.Header())
		if !d.a.CountsAnswer() {
			next.ServeHTTP(w, r)
			return
		}
		watched := &statusWriter{ResponseWriter: w, answered: d.Answered}
		next.ServeHTTP(watched, r)
		watched.answer(http.StatusOK)
	})
}

// A statusWriter tells answered of the answer, once.
type statusWriter struct {
	http.ResponseWriter
	answered func(status int, header http.Header)
}

func (w *statusWriter) answer(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		if w.answered != nil {
			w.answered(status, w.Header())
		}
		w.answered = nil
	}
}

func (w *statusWriter) WriteHeader(status int) {
	w.answer(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	w.answer(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Flush lets next stream, as http.Flusher.
func (w *statusWriter) Flush() {
	w.answer(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController find what the inner writer can.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
