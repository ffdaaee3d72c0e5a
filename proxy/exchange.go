package proxy

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// An arrival describes where a request comes from, and the decision about it.
type arrival struct {
	decision limit.Decision
	peer     netip.Addr // of the connection
	trusted  bool       // the peer is a trusted proxy
	own      bool       // the peer is a trusted proxy that names no client
	client   netip.Addr
	from     string // Origin; see observe
	grpc     string // Content-Type of the refusal of a gRPC call; see observe
	logged   int    // the status for the access log, if it differs from the one sent; else 0
}

// observe notes the value of a request's field if refusals depend on fields of this name. The value must stay valid
// until the refusal.
func (x *arrival) observe(name, value string) {
	switch {
	case len(name) == len("Content-Type") && strings.EqualFold(name, "Content-Type"):
		x.grpc = grpcType(value)
	case len(name) != len("Origin") || !strings.EqualFold(name, "Origin"):
	case x.from == "":
		x.from = value
	default:
		x.from = "null" // several Origin fields are invalid; no rule lists "null"
	}
}

// observeAll calls observe for the fields of r.
func (x *arrival) observeAll(r *http1.Request) {
	for f := range r.Fields {
		if f.Name == http1.Other {
			x.observe(borrow(r.NameOf(f)), borrow(r.ValueOf(f)))
		}
	}
}

// An exchange is one request on its way through the proxy. What it needs when the origin has answered comes first: with
// many clients, those bytes are no longer in the cache then (bench/http: pass, 128 bytes, 1,000 connections).
type exchange struct {
	p   *Proxy
	c   http1.Asker
	r   *http1.Request
	now time.Time // of the decision

	mu       sync.Mutex // orders the client's disconnect and the answer: both change the decision
	answered bool       // by the origin
	dropped  bool       // the abandoned exchange was ended to make room for others
	cancel   func()     // ends the wait of an abandoned exchange; nil after that

	whole bool   // the answer's whole body has arrived
	lines []byte // buffer for fields of the answer
	text  []byte // buffer for the answer's body

	abandoned atomic.Bool // the exchange continues without its client
	arrival
	place *conns.Holder // of an abandoned exchange
	timer *time.Timer   // calls cancel after abandonedPatience

	origin *Origin
	asked  rule.Request // the request for the limiter; valid as long as r
	method string       // as it was received; valid as long as asked
	line   requestLine  // for the access log
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// Serve answers r, or returns its origin and the exchange with it.
func (p *Proxy) Serve(c http1.Asker, r *http1.Request) (o *http1.Origin, relay http1.Relay) {
	p.note()
	x := exchanges.Get().(*exchange)
	x.p, x.c, x.r, x.now, x.peer = p, c, r, p.o.Now(), c.RemoteAddr()
	p.identify(&x.arrival, x.forwardedFor)
	q := &x.asked
	q.Addr, q.Borrowed, q.Fields = x.client, true, x
	q.Admit(borrow(r.Method()), borrow(r.Host()), borrow(r.Path()))
	x.method = q.Method
	if p.environment.due(x.now) {
		p.environment.look(x.peer, x.trusted, len(x.forwardedFor()) > 0)
	}
	p.decide(&x.arrival, q, x.now)
	if p.o.AccessLog != nil {
		x.line = requestLine{string(r.Method()), string(r.Host()), string(r.Target()), c.Proto()}
	}
	switch {
	case x.decision.Verdict.Refused():
		x.observeAll(r)
		x.refuse()
	case !x.findOrigin():
	case x.needsTLS():
		x.redirect()
	default:
		if x.decision.CountsAnswer() {
			x.observeAll(r) // now, because the answer may be withheld when the request's header is no longer valid
			x.from = strings.Clone(x.from)
		}
		return x.origin.relayed, x
	}
	x.end()
	return nil, nil
}

// forwardedFor returns the values of X-Forwarded-For, which are valid as long as the received request.
func (x *exchange) forwardedFor() (values []string) {
	for f := range x.r.Fields {
		if f.Name == http1.XForwardedFor {
			values = append(values, borrow(x.r.ValueOf(f)))
		}
	}
	return values
}

// findOrigin sets the request's origin. If the request must not be relayed, it answers the request, and returns false.
func (x *exchange) findOrigin() (ok bool) {
	p, req, origins := x.p, &x.asked, &x.p.o.Origins
	own := origins.ByHost[req.Host]
	x.origin = cmp.Or(own, origins.Default)
	if origins.ACME != nil && isChallenge(borrow(x.r.Path())) {
		x.origin = origins.ACME
	}
	switch {
	case p.o.StrictMethods && req.Method != x.method:
		x.answer(http.StatusNotImplemented, "methods are case-sensitive")
	case p.o.StrictHosts && own == nil && !p.o.Limiter.Rules().Names(req.Host):
		x.answer(http.StatusMisdirectedRequest, "no site for this host")
	case x.origin == nil:
		x.answer(http.StatusMisdirectedRequest, "no origin for this host")
	default:
		return true
	}
	return false
}

// isChallenge reports whether path is that of an ACME challenge, by which a certificate authority checks who controls
// the host (RFC 8555, 8.3). The characters of tokens cannot lead to another path.
func isChallenge(path string) bool {
	token, ok := strings.CutPrefix(path, "/.well-known/acme-challenge/")
	return ok && !strings.ContainsAny(token, `/\%?`)
}

// needsTLS reports whether the client must send the request again over TLS. It need not if it uses TLS to a trusted
// proxy in front, or if the request is a health check of such a proxy, which may insist on a 200.
func (x *exchange) needsTLS() bool {
	o, secure := &x.p.o, x.c.Secure()
	if o.Redirect == 0 || x.origin == o.Origins.ACME || x.decision.Verdict == limit.Own {
		return false
	}
	for f := range x.r.Fields {
		if x.trusted && f.Name == http1.XForwardedProto {
			client, _, _ := strings.Cut(borrow(x.r.ValueOf(f)), ",")
			secure = strings.EqualFold(client, "https")
		}
	}
	return !secure
}

// redirect redirects the request to the same URL with https. Host and path were checked, so they can neither end the
// field nor name another host.
func (x *exchange) redirect() {
	host, path := x.asked.Host, borrow(x.r.Path())
	if host == "" {
		x.answer(http.StatusBadRequest, "a request without a host cannot be redirected to https")
		return
	}
	fields := append(append(x.lines[:0], x.p.node...), plainText...)
	fields = append(append(fields, "Location: https://"...), host...)
	if port := x.p.o.Redirect; port != 443 {
		fields = strconv.AppendInt(append(fields, ':'), int64(port), 10)
	}
	x.lines = append(append(fields, strings.TrimPrefix(path, "*")...), "\r\n"...)
	status := http.StatusPermanentRedirect
	if x.method == http.MethodGet || x.method == http.MethodHead {
		status = http.StatusMovedPermanently // every client knows this one
	}
	x.c.Answer(status, x.lines, "use https\n")
}

// end logs the exchange and releases its memory.
func (x *exchange) end() {
	if x.p.o.AccessLog != nil {
		status, bytes := x.c.Sent()
		x.p.logRequest(&x.arrival, x.now, x.line, status, bytes)
	}
	if x.abandoned.Load() {
		return // the relay may still use it
	}
	lines, text := x.lines[:0], x.text[:0]
	*x = exchange{} // cleared in place, without a copy on the stack
	x.lines, x.text = lines, text
	exchanges.Put(x)
}

// Relayed ends the exchange. It answers if the client got no answer from the origin.
func (x *exchange) Relayed(err error) {
	defer x.end()
	switch {
	case errors.Is(err, http1.ErrWithheld):
		x.lines = x.lines[:0]
		x.refuse()
	case err != nil:
		x.failed(err)
	}
	if x.abandoned.Load() && !x.answered {
		x.resolve(0, nil)
	}
	if awaits, _ := x.decision.AwaitsBody(); awaits {
		x.p.o.Limiter.EndBody(&x.decision, x.whole, x.p.o.Now())
	}
}

// Body passes a part of the answer's body to the rules that count by it.
func (x *exchange) Body(part []byte, last bool) {
	x.decision.Body(part)
	x.whole = last
}

// refuse answers a refused request.
func (x *exchange) refuse() {
	switch {
	case x.drops():
		x.c.Drop()
		return
	case x.decision.Verdict == limit.Malformed && rule.IsTunnel(x.asked.Method):
		x.answer(http.StatusMethodNotAllowed, "method not allowed")
		return
	}
	x.c.Refuse(x.p.connections.scarce.Load() && !x.trusted)
	fields, status, body := x.p.refusal(x.appendOwn(x.lines), &x.text, &x.arrival, x.now)
	x.lines = fields
	x.c.Answer(status, fields, body)
}

// borrow returns b as a string, which is valid until b changes.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Malformed counts an invalid request. It returns the answer: err, if any, or the peer's refusal, which ends the
// connection.
func (p *Proxy) Malformed(peer netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	now := p.o.Now()
	switch x := p.malformed(peer, now); {
	case x.decision.Verdict == limit.Malformed && err != nil:
		return []byte(p.node + plainText), err.Status, err.Text + "\n", false
	case x.decision.Verdict == limit.Malformed:
		return nil, 0, "", false
	case x.drops(), x.decision.Verdict == limit.Denied:
		return nil, 0, "", true
	default:
		var buf []byte
		fields, status, body = p.refusal([]byte(p.node), &buf, &x, now)
		return fields, status, body, true
	}
}

// malformed counts a malformed request for its peer, unless the peer is a trusted proxy, whose client is unknown.
func (p *Proxy) malformed(peer netip.Addr, now time.Time) arrival {
	x := arrival{peer: peer, client: peer, trusted: p.trusted.Contains(peer)}
	x.decision.Verdict = limit.Malformed
	if !x.trusted {
		x.decision = p.o.Limiter.Decide(&rule.Request{Addr: peer, Malformed: true}, now)
	}
	return x
}

// RuleFields returns the fields that rules count by.
func (x *exchange) RuleFields() map[string][]string { return headerOf(x.r, x.p.o.Limiter.Rules()) }

// headerOf returns the fields of r that rules of set count by. They are valid as long as r.
func headerOf(r *http1.Request, set *rule.Set) map[string][]string {
	header := map[string][]string{}
	for f := range r.Fields {
		set.AddField(header, borrow(r.NameOf(f)), borrow(r.ValueOf(f)))
	}
	return header
}

// appendOwn appends the fields of every answer: the name of the node and, for clients with TLS, an announcement of
// HTTP/3.
func (x *exchange) appendOwn(dst []byte) []byte {
	if x.c.Secure() {
		dst = append(dst, x.p.altSvc...)
	}
	return append(dst, x.p.node...)
}

// Hasty reports whether the engine must notice a disconnect at once, because a rule counts by the answer.
func (x *exchange) Hasty() bool { return x.decision.CountsAnswer() }

// answer answers with a text of the node's own.
func (x *exchange) answer(status int, text string) {
	x.lines = append(x.appendOwn(x.lines[:0]), plainText...)
	x.c.Answer(status, x.lines, text+"\n")
}

// Answered counts the request by the origin's answer, and appends the client's quota fields. If a rule would refuse the
// request now, it withholds the answer.
func (x *exchange) Answered(dst []byte, a *http1.Answer) (fields []byte, deliver bool) {
	p, now := x.p, x.p.o.Now()
	p.metrics.origin.Observe(now.Sub(x.now).Seconds())
	x.mu.Lock()
	x.answered = true
	x.mu.Unlock()
	if x.abandoned.Load() {
		x.resolve(a.Status, a)
	} else {
		p.o.Limiter.Answered(&x.decision, a.Status, a, now)
	}
	if x.decision.CountsAnswer() && p.o.Limiter.Withholds(&x.decision, x.client, now) {
		p.metrics.withheld.Inc()
		x.now = now
		return dst, false
	}
	return x.appendOwn(p.o.Headers.append(dst, p.o.Limiter, &x.decision, now)), true
}

// failed answers a request whose relay failed with err. Rules do not count such answers.
func (x *exchange) failed(err error) {
	malformed, invalid := errors.AsType[*http1.Error](err)
	timeout := http1.IsTimeout(err)
	if relaying, ok := errors.AsType[*http1.RelayError](err); ok && relaying.Client {
		x.p.metrics.failed[reasonClient].Inc()
		switch {
		case invalid:
			x.answer(malformed.Status, malformed.Text)
		case timeout:
			x.answer(http.StatusRequestTimeout, http.StatusText(http.StatusRequestTimeout))
		default:
			x.logged = statusClientClosed
			x.c.Drop()
		}
		return
	}
	reason, status, text := reasonOrigin, http.StatusBadGateway, "the origin cannot be reached"
	switch {
	case timeout:
		reason, status, text = reasonTimeout, http.StatusGatewayTimeout, "the origin did not respond in time"
	case invalid:
		text = "the origin's response is invalid: " + malformed.Text
	}
	x.p.metrics.failed[reason].Inc()
	x.answer(status, text)
	x.origin.logFailure(x.p.o.Logger, err)
}

// statusClientClosed is the status that nginx logs for a client that has disconnected.
const statusClientClosed = 499
