package load

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"

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

// WriteCSV writes a header line and a line for each request, in the order in which they were sent.
// Times are relative to the start of the run. status is empty if there was no answer, and failure
// gives the reason.
func (l *Log) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"due_s", "sent_s", "latency_ms", "service_ms", "status", "failure", "retry_after_s", "target",
		"node", "component", "client", "address", "method", "host", "path"})
	micros := func(n, unit int64, digits int) string {
		return strconv.FormatFloat(float64(n)/float64(unit), 'f', digits, 64)
	}
	for i := range l.records {
		q := &l.records[i]
		look, target := l.looks[q.look-1], &l.o.Targets[q.target]
		host, path := look.at(target)
		var status, retry string
		if q.status != 0 {
			status = strconv.Itoa(int(q.status))
		}
		if q.retry > 0 {
			retry = strconv.Itoa(int(q.retry))
		}
		_ = c.Write([]string{
			micros(q.due, 1e6, 6), micros(q.sent, 1e6, 6), micros(q.done-q.due, 1e3, 3), micros(q.done-q.sent, 1e3, 3),
			status, failureNames[q.failure], retry, target.Name, l.nodes[q.node], l.components[look.Component].Name,
			strconv.FormatUint(q.client, 10), l.o.Source.Addr(q.client).String(),
			look.Method, host, path,
		})
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return fmt.Errorf("load: writing the CSV: %w", err)
	}
	return nil
}
