package edge

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"

	"github.com/edgelimit/edge/proxy"
)

// A Decision is the decision about an HTTP request. It is not safe for concurrent use.
type Decision struct{ a *proxy.Admission }

// Decide decides whether r passes, and counts it if so. Use Decide only if there is no http.Handler to wrap:
// [Limiter.Middleware] calls the methods of Decision for you.
func (l *Limiter) Decide(r *http.Request) Decision { return Decision{l.node.Admit(r)} }

// Refused reports whether the request must not be served. If so, answer it with Refuse.
func (d Decision) Refused() bool { return d.a.Refused() }

// Refuse answers the request as its rule specifies. For a rule with the action close, it panics with
// [http.ErrAbortHandler], so that net/http closes the connection.
func (d Decision) Refuse(w http.ResponseWriter, r *http.Request) { d.a.Refuse(w, r) }

// Header sets the response header fields that tell the client its remaining quotas.
func (d Decision) Header(header http.Header) { d.a.Sign(header) }

// Answered counts a request that passed, for the rules that count by the answer. It must be called at most once. Only
// rules with a cost from the answer use header, which may be nil. If withheld is true, a rule now refuses the request,
// and the client must not get the answer: call Refuse. Otherwise call Body and EndBody.
func (d Decision) Answered(status int, header http.Header) (withheld bool) {
	return d.a.Answered(status, header)
}

// Body passes the next part of the answer's body to the rules with a cost_json.
func (d Decision) Body(part []byte) { d.a.Body(part) }

// EndBody counts a request, for rules with a cost_json, when the body of its answer has ended or, if whole is not set,
// was cut off.
func (d Decision) EndBody(whole bool) { d.a.EndBody(whole) }

// Middleware returns a handler that answers requests that the rules refuse, and passes all others to next. Rules that
// count by the answer see what next writes. The http.ResponseWriter that next gets implements http.Hijacker and
// http.Pusher if the original does.
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
		var refusal http.Header // of an answer that is withheld
		watched := &statusWriter{ResponseWriter: w, decision: d, answered: func(status int) (withheld bool) {
			if withheld = d.Answered(status, w.Header()); withheld {
				clear(w.Header())
				d.Refuse(w, r)
				refusal = w.Header().Clone()
			}
			return withheld
		}}
		whole := false
		defer func() {
			d.EndBody(whole)
			if watched.withheld { // next may have set trailers, which would tell the client its answer
				clear(w.Header())
				maps.Copy(w.Header(), refusal)
			}
		}()
		defer watched.answer(http.StatusInternalServerError) // if next panics, since middleware outside may answer 500
		next.ServeHTTP(watched.extended(), r)
		watched.answer(http.StatusOK)
		whole = true
	})
}

// A statusWriter calls answered once, with the answer's status. If that returns true, it discards the answer.
type statusWriter struct {
	http.ResponseWriter
	decision Decision
	answered func(status int) (withheld bool)
	withheld bool
}

// answer calls answered unless status is that of an interim answer, and reports whether the client gets the answer.
func (w *statusWriter) answer(status int) bool {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		if answered := w.answered; answered != nil {
			w.answered = nil
			w.withheld = answered(status)
		}
	}
	return !w.withheld
}

func (w *statusWriter) WriteHeader(status int) {
	if w.answer(status) {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if !w.answer(http.StatusOK) {
		return len(p), nil
	}
	w.decision.Body(p)
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that the operating system can send files.
func (w *statusWriter) ReadFrom(r io.Reader) (int64, error) {
	if !w.answer(http.StatusOK) {
		return io.Copy(io.Discard, r)
	}
	if w.decision.a.ReadsBody() {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher, so that next can stream.
func (w *statusWriter) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *statusWriter) FlushError() error {
	if !w.answer(http.StatusOK) {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// CloseNotify implements http.CloseNotifier, which Gin requires. The channel is nil if the underlying writer has none.
func (w *statusWriter) CloseNotify() <-chan bool {
	if n, ok := ability[interface{ CloseNotify() <-chan bool }](w.ResponseWriter); ok {
		return n.CloseNotify()
	}
	return nil
}

// Unwrap gives http.ResponseController access to the underlying writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extended returns w with the methods of the underlying writer by which libraries detect what the connection can do.
func (w *statusWriter) extended() http.ResponseWriter {
	hijacker, hijacks := ability[http.Hijacker](w.ResponseWriter)
	pusher, pushes := ability[http.Pusher](w.ResponseWriter)
	switch {
	case hijacks: // HTTP/1, which cannot push
		return hijackWriter{w, hijacker}
	case pushes:
		return struct {
			*statusWriter
			http.Pusher
		}{w, pusher}
	}
	return w
}

// ability returns the first T among w and the writers that it wraps, as http.ResponseController does.
func ability[T any](w http.ResponseWriter) (found T, ok bool) {
	for {
		if found, ok = w.(T); ok {
			return found, true
		}
		wrapper, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return found, false
		}
		w = wrapper.Unwrap()
	}
}

// A hijackWriter is a statusWriter that implements http.Hijacker.
type hijackWriter struct {
	*statusWriter
	hijacker http.Hijacker
}

func (w hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !w.answer(http.StatusSwitchingProtocols) {
		return nil, nil, errors.New("edge: a rule has refused the request")
	}
	return w.hijacker.Hijack()
}
