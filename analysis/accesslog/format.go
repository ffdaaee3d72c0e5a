package accesslog

import "bytes"

// A layout reads the lines of a format. It is used by several workers at once.
type layout interface {
	// parse reads a line, without its end, into r. It returns why the line is no entry,
	// or nothing.
	parse(s []byte, r *record) (reason string)
}

// A Format is one that logs are read in.
type Format struct {
	Name    string
	About   string
	Example string

	layout layout
}

// Formats returns the formats that can be named.
func Formats() []Format { return formats() }

func formats() []Format {
	return []Format{
		{"combined", "Apache's and nginx's log, also with a virtual host in front and more fields behind",
			`203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET /a?b=c HTTP/1.1" 200 512 "-" "curl/8.5.0"`, clf{}},
		{"trace", "Unix seconds, a tab, and the client", "1767366245\t203.0.113.7", trace{}},
	}
}

func (s *source) recognise(head []byte, whole bool) error {
	if bytes.IndexByte(head[:min(len(head), 20)], '\t') > 0 {
		s.format, s.layout = "trace", trace{}
		return nil
	}
	s.format, s.layout = "combined", clf{}
	return nil
}
