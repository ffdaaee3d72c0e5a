package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/edgelimit/edge/pop/limit"
)

// refuse answers a request that the origin must not see.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, x *exchange, now time.Time) {
	d := &x.decision
	header := w.Header()
	switch {
	case d.Verdict == limit.Denied:
		header.Set("Content-Type", "text/plain; charset=utf-8")
		writeAnswer(w, r, http.StatusForbidden, "forbidden\n")
		return
	case d.Verdict == limit.Unavailable:
		// A shard that can be found again is found within a second.
		header["Retry-After"] = []string{"1"}
		header["Cache-Control"] = []string{"no-store"}
		header.Set("Content-Type", "text/plain; charset=utf-8")
		writeAnswer(w, r, http.StatusServiceUnavailable, "temporarily unavailable\n")
		return
	case d.Verdict == limit.Closed && !x.trusted:
		// net/http closes the connection of HTTP/1, and resets the stream of HTTP/2.
		panic(http.ErrAbortHandler)
	case d.Verdict != limit.ShadowBanned:
		header["Retry-After"] = []string{strconv.FormatInt(retryAfter(d, now), 10)}
		header["Cache-Control"] = []string{"no-store"}
		p.o.Headers.write(header, p.o.Limiter, d, now)
	}
	response := d.Rule.Response
	header["Content-Type"] = []string{response.ContentType}
	writeAnswer(w, r, response.Status, response.Body)
}

func writeAnswer(w http.ResponseWriter, r *http.Request, status int, body string) {
	bodiless := status == http.StatusNoContent || status == http.StatusNotModified
	if !bodiless {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	if !bodiless && r.Method != http.MethodHead {
		_, _ = w.Write([]byte(body)) // the client may be gone
	}
}

// retryAfter returns the whole seconds after which a client may come back: the ceiling of
// what is left of the mitigation on this node. It is never 0.
func retryAfter(d *limit.Decision, now time.Time) int64 {
	return seconds(d.Record.Deadline.Sub(now))
}

// seconds rounds up to whole seconds, 1 at least.
func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
