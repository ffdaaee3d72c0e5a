package accesslog

import "bytes"

// haproxy is HAProxy's HTTP log, with or without what syslog puts in front.
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
		return "not a request, but what became of a connection"
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

// haproxyTime finds the time, and returns what is before and after it.
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

// squid is Squid's native log.
//
//	seconds.milliseconds elapsed client result/status bytes method URL user hierarchy/peer type
type squid struct{}

func (squid) parse(s []byte, r *record) string {
	at, s := cutWord(s)
	t, ok := unix(at)
	if !ok || bytes.IndexByte(at, '.') < 0 {
		return "no time like 1136214245.000"
	}
	elapsed, s := cutWord(s)
	if _, ok := number(bytes.TrimPrefix(elapsed, []byte("-"))); !ok {
		return "no milliseconds after the time"
	}
	client, s := cutWord(s)
	result, s := cutWord(s)
	i := bytes.IndexByte(result, '/')
	if i < 0 || len(client) == 0 {
		return "no result after the client, such as TCP_MISS/200"
	}
	_, s = cutWord(s)
	method, s := cutWord(s)
	url, s := cutWord(s)
	if len(url) == 0 || len(s) == 0 {
		return "fewer than 9 words"
	}
	r.time, r.client = t, client
	if r.need&^Addr == 0 {
		return ""
	}
	r.code(result[i+1:])
	if letters(method) {
		r.method = method
		r.target(url)
	}
	return ""
}

// manager is the log of Nginx Proxy Manager, and, in the same file, combined.
//
//	[time] cache upstream-status status - method scheme host "path" [Client address] [Length n] [Gzip n] [Sent-to server] "agent" "referer"
//	[time] status - method scheme host "path" [Client address] …
type manager struct{}

func (manager) parse(s []byte, r *record) string {
	if s[0] != '[' {
		return clf{}.parse(s, r)
	}
	if len(s) < clfLength+2 || s[clfLength+1] != ']' {
		return "no time like [02/Jan/2006:15:04:05 -0700]"
	}
	t, ok := r.clock.clf(s[1:])
	if !ok {
		return "no time like [02/Jan/2006:15:04:05 -0700]"
	}
	s = s[clfLength+2:]
	quote := bytes.Index(s, []byte(` "`))
	if quote < 0 {
		return "no path in quotes"
	}
	words := s[:quote]
	path, s, _ := cutQuoted(s[quote+1:])
	mark := []byte("[Client ")
	i := bytes.Index(s, mark)
	if i < 0 {
		return "no [Client …]"
	}
	s = s[i+len(mark):]
	end := bytes.IndexByte(s, ']')
	if end <= 0 {
		return "no [Client …]"
	}
	r.time, r.client = t, s[:end]
	if r.need&^Addr == 0 {
		return ""
	}
	before, last := words, [5][]byte{} // status - method scheme host
	for i := len(last) - 1; i >= 0; i-- {
		cut := bytes.LastIndexByte(before, ' ')
		last[i], before = before[cut+1:], before[:max(cut, 0)]
	}
	r.code(last[0])
	r.method, r.host = last[2], last[4]
	r.target(r.unescape(path))
	if quote := bytes.Index(s, []byte(` "`)); quote >= 0 && r.need&Header != 0 {
		agent, rest, _ := cutQuoted(s[quote+1:])
		referer, _, _ := cutQuoted(trimSpaces(rest))
		r.set("User-Agent", r.unescape(agent))
		r.set("Referer", r.unescape(referer))
	}
	return ""
}
