package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy/http1"
)

// A Check answers other proxies that ask whether a request may pass, with 200 or the refusal. It is a handler for all
// engines, and safe for concurrent use.
//
// The beginning of the path says which fields describe the request:
//
//	/check              X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Host (Traefik, Caddy)
//	/check/original     X-Original-Method and X-Original-URL, with or without the host (nginx)
//	/check/request/...  method, host and the rest of the path of the question itself (Envoy)
//
// A Check ignores the fields of the other kinds: a proxy overwrites only those of its own kind, and forwards the others
// as its client sent them. The client always comes from X-Forwarded-For. POST to /report instead of /check, with
// X-Origin-Status and, for rules with a cost header, X-Origin-Cost, reports the origin's answer.
type Check struct {
	p *Proxy
	o CheckOptions
}

// CheckOptions configures a Check. The zero value is usable.
type CheckOptions struct {
	// Local trusts every peer, as on a Unix socket. Otherwise only trusted proxies may ask.
	Local bool

	// DenyStatus is the status of all refusals. If zero, each has its own, except at /check/original, where all have
	// 403: nginx turns any other status into 500.
	DenyStatus int
}

// NewCheck returns a Check that makes the same decisions as p.
func (p *Proxy) NewCheck(o CheckOptions) *Check { return &Check{p, o} }

// A description says which part of a question describes the request; see Check.
type description uint8

const (
	forwarded description = iota
	original
	itself
)

// Malformed refuses an invalid question, and counts it for no client. The asking proxy may have forwarded fields as its
// client sent them: after a status that is not a refusal, it could assume that the node failed, and let the client
// pass.
func (k *Check) Malformed(_ netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	err = cmp.Or(err, &http1.Error{Status: http.StatusBadRequest, Text: "malformed request"})
	fields = fmt.Appendf(nil, "X-Edge-Verdict: %v\r\nX-Edge-Status: %d\r\n", limit.Malformed, err.Status)
	return append(fields, plainText...), cmp.Or(k.o.DenyStatus, http.StatusForbidden), err.Text + "\n", false
}

// Serve answers a question.
func (k *Check) Serve(c http1.Asker, r *http1.Request) (o *http1.Origin, relay http1.Relay) {
	p, now := k.p, k.p.o.Now()
	var buf [512]byte
	x := question{arrival: arrival{peer: c.RemoteAddr()}}
	if status, why := k.read(c, r, &x, now); status != 0 {
		c.Answer(status, append(append(buf[:0], p.node...), plainText...), why+"\n")
		return nil, nil
	}
	p.note()
	if set := p.o.Limiter.Rules(); set.ReadsFields() {
		x.req.Header = headerOf(r, set)
	}
	p.settle(&x, "check", now, func() (status int, bytes int64) {
		fields, status, body := append(buf[:0], p.node...), http.StatusNoContent, ""
		if !x.report {
			if x.decision.Verdict.Refused() {
				x.observeAll(r)
				x.grpc = "" // the asking proxy answers in the client's protocol
			}
			fields, status, body = k.verdict(fields, &x, now)
		}
		c.Answer(status, fields, body)
		return c.Sent()
	})
	return nil, nil
}

// read reads the question x. If x cannot be answered, read returns the status of the error, and its text.
func (k *Check) read(c http1.Asker, r *http1.Request, x *question, now time.Time) (status int, why string) {
	if !k.o.Local && !k.p.trusted.Contains(x.peer) {
		const text = "the check endpoint was asked by an address that is not a trusted proxy"
		k.p.undecided(undecidedPeer, now, text, "peer", x.peer)
		c.Refuse(true)
		return http.StatusForbidden, notTrusted
	}
	rest, ok := x.route(borrow(r.Path()))
	switch {
	case !ok:
		return http.StatusNotFound, "ask /check, /check/original or /check/request/…, or POST to /report"
	case x.report && string(r.Method()) != http.MethodPost:
		return http.StatusMethodNotAllowed, "reports must use POST"
	}
	x.readFields(r, rest)
	x.client = k.p.client(netip.Addr{}, x.chain)
	x.req.Addr = x.client
	if problem := x.problem(); problem != "" {
		const text = "the check endpoint was asked about a request without a valid description"
		k.p.undecided(undecidedField, now, text, "peer", x.peer, "problem", problem)
		return http.StatusBadRequest, problem
	}
	return 0, ""
}

// verdict returns the answer to x: dst with the fields appended as lines that end in CRLF, the status and the body.
func (k *Check) verdict(dst []byte, x *question, now time.Time) (fields []byte, status int, body string) {
	d := &x.decision
	dst = append(append(append(dst, "X-Edge-Verdict: "...), d.Verdict.String()...), "\r\n"...)
	if d.Rule != nil {
		dst = append(append(append(dst, "X-Edge-Rule: "...), d.Rule.ID...), "\r\n"...)
	}
	if !d.Verdict.Refused() {
		return k.p.o.Headers.append(dst, k.p.o.Limiter, d, now), http.StatusOK, ""
	}
	var text []byte
	dst, status, body = k.p.refusal(dst, &text, &x.arrival, now)
	if x.in == original {
		body = "" // nginx keeps the connection of a subrequest open only after an answer without a body
		if d.RefusesClient(now.Add(remembered)) {
			dst = append(dst, "X-Accel-Expires: 1\r\n"...) // nginx caches it until the end of the next second
		}
	}
	dst = append(strconv.AppendInt(append(dst, "X-Edge-Status: "...), int64(status), 10), "\r\n"...)
	switch {
	case k.o.DenyStatus != 0:
		status = k.o.DenyStatus
	case x.in == original || status < 300: // the asking proxy would let the request pass after a shadow ban's 200
		status = http.StatusForbidden
	}
	return dst, status, body
}

// route sets x.report and x.in, as path says. rest is the rest of the path, with the query. If path is unknown, ok is
// false.
func (x *question) route(path string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, "/check")
	if !ok {
		if rest, ok = strings.CutPrefix(path, "/report"); !ok {
			return "", false
		}
		x.report = true
	}
	end, _, _ := strings.Cut(rest, "?")
	switch {
	case end == "":
		x.in = forwarded
	case end == "/original":
		x.in = original
	case strings.HasPrefix(end, "/request/"):
		x.in = itself
		rest = rest[len("/request"):]
	default:
		return "", false
	}
	return rest, true
}

// describing are the names of the fields that describe a request.
var describing = [...]struct{ method, target string }{
	forwarded: {"X-Forwarded-Method", "X-Forwarded-Uri"},
	original:  {"X-Original-Method", "X-Original-URL"},
}

// readFields reads the description of the request. x then refers to r's memory, and is valid as long as r.
func (x *question) readFields(r *http1.Request, rest string) {
	once := func(to *string, f *http1.Field, name string) {
		if *to != "" {
			x.twice = name
		}
		*to = borrow(r.ValueOf(f))
	}
	var host, status string
	for f := range r.Fields {
		switch name := borrow(r.NameOf(f)); {
		case f.Name == http1.XForwardedFor:
			x.chain = append(x.chain, borrow(r.ValueOf(f)))
		case f.Name == http1.XForwardedHost && x.in == forwarded:
			once(&host, f, "X-Forwarded-Host")
		case len(name) < 3 || name[0]|0x20 != 'x' || name[1] != '-':
		case x.in != itself && strings.EqualFold(name, describing[x.in].method):
			once(&x.req.Method, f, describing[x.in].method)
		case x.in != itself && strings.EqualFold(name, describing[x.in].target):
			once(&x.target, f, describing[x.in].target)
		case x.report && strings.EqualFold(name, "X-Origin-Status"):
			once(&status, f, "X-Origin-Status")
		case x.report && strings.EqualFold(name, "X-Origin-Cost"):
			x.cost = append(x.cost, string(r.ValueOf(f)))
		case x.report && strings.EqualFold(name, "X-Edge-Verdict"):
			once(&x.reportedVerdict, f, "X-Edge-Verdict")
		}
	}
	switch x.in {
	case forwarded:
		x.req.Host = host
	case original:
		x.req.Host = borrow(r.Host())
	case itself:
		x.req.Method, x.target, x.req.Host = borrow(r.Method()), rest, borrow(r.Host())
	}
	x.status, _ = strconv.Atoi(status)
}

// problem returns what is wrong with the description, or "".
func (x *question) problem() string {
	switch {
	case x.twice != "":
		return x.twice + " is repeated"
	case x.req.Method == "":
		return describing[x.in].method + " is missing"
	case x.target == "":
		return describing[x.in].target + " is missing"
	case len(x.chain) == 0:
		return "X-Forwarded-For is missing"
	case !x.client.IsValid():
		return "X-Forwarded-For does not end in the client's address"
	case x.report && (x.status < 100 || x.status > 599):
		return "X-Origin-Status is not the status of a response"
	}
	return ""
}
