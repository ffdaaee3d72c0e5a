package main

import "github.com/edgelimit/edge/analysis/accesslog"

// A logRead is what JSON answers say of the log.
type logRead struct {
	Files          []logFile      `json:"files"`
	Lines          int64          `json:"lines"`
	Requests       int64          `json:"requests"`
	Malformed      int64          `json:"malformed"`                 // lines that are not requests, nor blank, nor comments
	MalformedLines []logMalformed `json:"malformed_lines,omitempty"` // the first of them
	Unnamed        int64          `json:"unnamed"`                   // requests without a client
}

type logFile struct {
	Name        string `json:"name"`
	Format      string `json:"format"`
	Compression string `json:"compression,omitempty"`
	CutOff      bool   `json:"cut_off,omitempty"`
	Lines       int64  `json:"lines"`
	Requests    int64  `json:"requests"`
	Malformed   int64  `json:"malformed"`
}

type logMalformed struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text,omitempty"` // left out where clients are not to be named
}

// newLogRead returns what s says, without the text of lines if named is false.
func newLogRead(s accesslog.Stats, named bool) logRead {
	r := logRead{Lines: s.Lines, Requests: s.Entries, Malformed: s.Malformed, Unnamed: s.Unnamed}
	for _, f := range s.Files {
		r.Files = append(r.Files, logFile{f.Name, f.Format, f.Compression, f.Torn, f.Lines, f.Entries, f.Malformed})
	}
	for _, m := range s.Samples {
		if !named {
			m.Text = ""
		}
		r.MalformedLines = append(r.MalformedLines, logMalformed(m))
	}
	return r
}
