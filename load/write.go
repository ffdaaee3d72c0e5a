package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// Write writes the requests that reached the target as an access log of JSON lines, in the
// order and at the times in which they were sent. The status is what the origin answered; of
// requests that were refused, what it would have. A replay of the log against the same rules
// makes the same exact decisions as Score.
func (l *Log) Write(w io.Writer, o OracleOptions) error {
	x := &oracle{o: o, log: l, began: l.Began.UnixMicro()}
	if o.Rules != nil {
		x.rules = o.Rules.Rules()
	}
	for _, t := range l.o.Targets {
		x.sources = append(x.sources, ownAddr(t.Addr))
	}
	b := bufio.NewWriterSize(w, 1<<16)
	var e accesslog.Entry
	for i := range l.records {
		q := &l.records[i]
		if q.failure == notSent {
			continue
		}
		x.entry(q, &e)
		if err := writeEntry(b, &e); err != nil {
			return fmt.Errorf("load: writing the log: %w", err)
		}
	}
	return b.Flush()
}

// A line is what a line of the log is made of, in the manner of Caddy.
type line struct {
	Time    json.Number `json:"ts"`
	Request struct {
		IP      string              `json:"client_ip"`
		Method  string              `json:"method"`
		Host    string              `json:"host"`
		URI     string              `json:"uri"`
		Headers map[string][]string `json:"headers,omitempty"`
	} `json:"request"`
	Status int `json:"status"`
}

func writeEntry(w *bufio.Writer, e *accesslog.Entry) error {
	var l line
	l.Time = json.Number(fmt.Sprintf("%d.%06d", e.Time/1e6, e.Time%1e6))
	l.Request.IP, l.Request.Method, l.Request.Host, l.Request.URI = e.Client, e.Method, e.Host, e.Path
	if e.Query != "" {
		l.Request.URI += "?" + e.Query
	}
	for _, f := range e.Header {
		if l.Request.Headers == nil {
			l.Request.Headers = map[string][]string{}
		}
		if before := l.Request.Headers[f.Name]; len(before) > 0 { // of several lines one is read
			before[0] += map[bool]string{true: "; ", false: ", "}[f.Name == "Cookie"] + f.Value
		} else {
			l.Request.Headers[f.Name] = []string{f.Value}
		}
	}
	l.Status = e.Status
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
