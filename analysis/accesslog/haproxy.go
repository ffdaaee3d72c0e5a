package accesslog

import "bytes"

// haproxy is HAProxy's HTTP log, with or without the prefix of syslog.
//
//	client:port [02/Jan/2006:15:04:05.000] frontend backend/server t/t/t/t/t status n - - ---- n/n/n/n/n n/n {…} {…} "request"
type haproxy struct{}

func (haproxy) parse(s []byte, r *record) string {
	before, rest, t, ok := haproxyTime(s, r)
	if !ok {
		return "no time like [02/Jan/2006:15:04:05.000]"
	}
	if i := bytes.LastIndexByte(before, ' '); i >= 0 {
		before = before[i+1:]
	}
	if bytes.LastIndexByte(before, ':') <= 0 {
		return "no client:port before the time"
	}
	frontend, rest := cutWord(rest)
	if n := len(frontend); n > 0 && frontend[n-1] == ':' {
		return "about a connection, not a request"
	}
	server, rest := cutWord(rest)
	timers, rest := cutWord(rest)
	if bytes.IndexByte(server, '/') < 0 || bytes.Count(timers, []byte("/")) < 2 {
		return "no server and timers after the frontend"
	}
	if bytes.Count(timers, []byte("/")) < 4 {
		return "a TCP connection, not a request"
	}
	r.time, r.client = t, withoutItsPort(before)
	if r.need&^Addr == 0 {
		return ""
	}
	status, rest := cutWord(rest)
	r.code(status)
	if i := bytes.IndexByte(rest, '"'); i >= 0 {
		request, _, _ := cutQuoted(rest[i:])
		r.request(request)
	}
	return ""
}

// haproxyTime finds the time. It returns the text before and after it.
func haproxyTime(s []byte, r *record) (before, after []byte, t int64, ok bool) {
	for at := 0; ; at++ {
		i := bytes.IndexByte(s[at:], '[')
		if i < 0 {
			return nil, nil, 0, false
		}
		at += i
		t, n, ok := r.clock.clfLocal(s[at+1:])
		if end := at + 1 + n; ok && end < len(s) && s[end] == ']' && at > 0 && s[at-1] == ' ' {
			return s[:at-1], s[end+1:], t, true
		}
	}
}
