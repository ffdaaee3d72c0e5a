package accesslog

import "bytes"

// trace is the shortest form of a log: a time and a client, separated by a tab.
type trace struct{}

func (trace) parse(s []byte, r *record) string {
	i := bytes.IndexByte(s, '\t')
	if i < 0 {
		return "no tab between time and client"
	}
	client := s[i+1:]
	switch {
	case len(client) == 0:
		return "no client"
	case bytes.IndexByte(client, '\t') >= 0:
		return "more than a time and a client"
	}
	t, ok := unix(s[:i])
	if !ok {
		return "the time is not a number of seconds"
	}
	r.time, r.client = t, client
	return ""
}
