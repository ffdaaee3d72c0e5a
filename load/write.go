package load

import (
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load/judge"
)

// Write writes the requests that reached the target as an access log of JSON lines, ordered by the
// time at which they were sent. The status is the origin's, or the one that it would have sent for
// requests that it did not answer. A replay of the log with the same rules makes the same exact
// decisions as Score.
func (l *Log) Write(w io.Writer) error {
	t, lines := (*trace)(l), accesslog.NewWriter(w)
	for i := range l.records {
		if l.records[i].failure == judge.NotSent {
			continue
		}
		if err := lines.Write(t.entry(i)); err != nil {
			return fmt.Errorf("load: writing the log: %w", err)
		}
	}
	return lines.Flush()
}

// entry returns the entry of the ith request.
func (t *trace) entry(i int) *accesslog.Entry {
	r, p := t.At(i), t.Properties(i, false)
	e := &accesslog.Entry{
		Time: r.Sent, Addr: p.Addr, Method: p.Method, Host: p.Host, Path: p.Target, Status: r.Answer.Status,
	}
	for _, h := range p.Header {
		e.Header = append(e.Header, accesslog.Field{Name: textproto.CanonicalMIMEHeaderKey(h[0]), Value: h[1]})
	}
	if t.records[i].refused() || slices.Contains([]int{0, http.StatusBadGateway, http.StatusGatewayTimeout}, e.Status) {
		e.Status = r.Answer.Expected
	}
	return e
}
