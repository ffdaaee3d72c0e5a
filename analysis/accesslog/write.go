package accesslog

import (
	"bufio"
	"encoding/json"
	"io"
	"time"
)

// A Writer writes entries as lines of JSON that a Log can read.
type Writer struct {
	out   *bufio.Writer
	lines *json.Encoder
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer {
	out := bufio.NewWriterSize(w, 64<<10)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return &Writer{out, lines}
}

// Write writes an entry, with the address of its client.
func (w *Writer) Write(e *Entry) error {
	var line struct {
		Time    string `json:"time"`
		Client  string `json:"remote_addr"`
		Method  string `json:"request_method,omitempty"`
		Host    string `json:"host,omitempty"`
		URI     string `json:"request_uri"`
		Status  int    `json:"status"`
		Request struct {
			Headers map[string]string `json:"headers"`
		} `json:"request,omitzero"`
		Attack bool `json:"attack,omitempty"`
	}
	line.Time = time.UnixMicro(e.Time).UTC().Format("2006-01-02T15:04:05.000000Z")
	line.Client, line.Method, line.Host, line.URI = e.Address().String(), e.Method, e.Host, e.Path
	line.Status, line.Attack = e.Status, e.Attack
	if e.Query != "" {
		line.URI += "?" + e.Query
	}
	if line.URI == "" {
		line.URI = "/" // a line without it would not be read as a request
	}
	for _, f := range e.Header {
		if line.Request.Headers == nil {
			line.Request.Headers = map[string]string{}
		}
		value, several := line.Request.Headers[f.Name]
		switch {
		case several && f.Name == "Cookie":
			value += "; "
		case several:
			value += ", "
		}
		line.Request.Headers[f.Name] = value + f.Value
	}
	return w.lines.Encode(line)
}

// Flush writes what is buffered.
func (w *Writer) Flush() error { return w.out.Flush() }
