package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
)

// Write writes the requests that reached the target as an access log of JSON lines, ordered by the
// time at which they were sent. The status is the origin's, or the one that it would have sent for
// requests that it did not answer. A replay of the log with the same rules makes the same exact
// decisions as Score.
func (l *Log) Write(w io.Writer) error {
	t := (*trace)(l)
	b := bufio.NewWriterSize(w, 1<<16)
	for i := range l.records {
		if l.records[i].failure == notSent {
			continue
		}
		if err := t.write(b, i); err != nil {
			return fmt.Errorf("load: writing the log: %w", err)
		}
	}
	return b.Flush()
}

// A line is a line of the log, in the format of Caddy.
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

// write writes the ith request.
func (t *trace) write(w io.Writer, i int) error {
	q, r, p := &t.records[i], t.At(i), t.Properties(i, false)
	var l line
	l.Time = json.Number(fmt.Sprintf("%d.%06d", r.Sent/1e6, r.Sent%1e6))
	l.Request.IP, l.Request.Method, l.Request.Host, l.Request.URI = p.Addr.String(), p.Method, p.Host, p.Target
	for _, h := range p.Header {
		if l.Request.Headers == nil {
			l.Request.Headers = map[string][]string{}
		}
		name := textproto.CanonicalMIMEHeaderKey(h[0])
		if before := l.Request.Headers[name]; len(before) > 0 { // readers use only one of several lines
			separator := ", "
			if name == "Cookie" {
				separator = "; "
			}
			before[0] += separator + h[1]
		} else {
			l.Request.Headers[name] = []string{h[1]}
		}
	}
	if l.Status = r.Answer.Status; l.Status == 0 || q.refused() || l.Status == http.StatusBadGateway ||
		l.Status == http.StatusGatewayTimeout {
		l.Status = r.Answer.Expected
	}
	return json.NewEncoder(w).Encode(l)
}
