package accesslog

import "bytes"

// alb is the log of an AWS Application Load Balancer.
//
//	type time elb client:port target:port t t t status status n n "request" "agent" …
type alb struct{}

func (alb) parse(s []byte, r *record) string {
	kind, s := cutWord(s)
	switch string(kind) {
	case "http", "https", "h2", "grpcs", "ws", "wss":
	default:
		return "no type of connection, such as https"
	}
	return balancer(s, r)
}

// elb is the log of an AWS Classic Load Balancer: alb's without the type.
type elb struct{}

func (elb) parse(s []byte, r *record) string { return balancer(s, r) }

func balancer(s []byte, r *record) string {
	at, s := cutWord(s)
	t, n, ok := r.clock.iso(at)
	if !ok || n != len(at) {
		return "no time like 2006-01-02T15:04:05.000000Z"
	}
	_, s = cutWord(s)
	client, s := cutWord(s)
	if client = withoutItsPort(client); !missing(client) && !addressOf(client).IsValid() {
		return "no address of a client"
	}
	if len(client) == 0 {
		return "no client"
	}
	r.time, r.client = t, client
	s = skipWords(s, 4)
	status, s := cutWord(s)
	s = skipWords(s, 3)
	request, s, ok := cutQuoted(trimSpaces(s))
	if !ok {
		return "no request in quotes"
	}
	if r.need&^Addr == 0 {
		return ""
	}
	r.code(status)
	r.request(request)
	if agent, _, ok := cutQuoted(trimSpaces(s)); ok {
		r.set("User-Agent", r.unescape(agent))
	}
	return ""
}

// s3 is Amazon S3's server access log.
//
//	owner bucket [time] address requester id operation key "request" status error n n t t "referer" "agent" …
type s3 struct{}

func (s3) parse(s []byte, r *record) string {
	s = skipWords(s, 2)
	if s = trimSpaces(s); len(s) < clfLength+2 || s[0] != '[' || s[clfLength+1] != ']' {
		return "no time after owner and bucket"
	}
	t, ok := r.clock.clf(s[1:])
	if !ok {
		return "no time like [02/Jan/2006:15:04:05 -0700]"
	}
	client, s := cutWord(s[clfLength+2:])
	s = skipWords(s, 2)
	operation, s := cutWord(s)
	if i := bytes.IndexByte(operation, '.'); i < 0 {
		return "no operation like REST.GET.OBJECT"
	} else {
		switch string(operation[:i]) {
		case "REST", "SOAP", "WEBSITE", "BATCH", "S3":
		default:
			return "no operation like REST.GET.OBJECT"
		}
	}
	r.time, r.client = t, client
	if r.need&^Addr == 0 {
		return ""
	}
	_, s = cutWord(s)
	request, s, quoted := cutQuoted(trimSpaces(s))
	if quoted {
		r.request(request)
	} else {
		_, s = cutWord(s)
	}
	status, s := cutWord(s)
	r.code(status)
	if r.need&Header == 0 {
		return ""
	}
	s = skipWords(s, 5)
	referer, s, _ := cutQuoted(trimSpaces(s))
	agent, _, _ := cutQuoted(trimSpaces(s))
	r.set("Referer", r.unescape(referer))
	r.set("User-Agent", r.unescape(agent))
	return ""
}
