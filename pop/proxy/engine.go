package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/edgelimit/edge/pop/http1"
	"github.com/edgelimit/edge/pop/http2"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// A client is an HTTP/1.1 connection or an HTTP/2 stream of an engine.
type client interface {
	RemoteAddr() netip.AddrPort
	Secure() bool
	Answer(r *http1.Request, status int, fields []byte, body string)
	Relay(r *http1.Request, o *http1.Origin, edit http1.Relay) error
	Refuse(last bool)
	Drop()
	Gone(status int)
	Sent() (status int, bytes int64)
}

// A plainExchange is one request in an engine.
type plainExchange struct {
	exchange
	exchangeBuffers
	p     *Proxy
	c     client
	r     *http1.Request
	asked rule.Request // r for the limiter
	now   time.Time
	line  requestLine // for the access log
	keeps [3]bool

	abandoned atomic.Bool // the exchange continues without its client

	mu       sync.Mutex // orders the client's disconnect and the answer: both change the decision
	answered bool       // by the origin
}

// Exchanges pass exchangeBuffers on, one to another.
type exchangeBuffers struct {
	host  []byte // for the origin
	from  []byte // the peer's address, for X-Forwarded-For
	chain []byte // X-Forwarded-For from a trusted peer
	lines []byte // of the answer's header
	names []byte // options of Connection
	text  []byte // the body, if the rule's has placeholders
}

var plainExchanges = sync.Pool{New: func() any { return new(plainExchange) }}

// ServeHTTP1 decides r like ServeHTTP, then relays or answers it.
func (p *Proxy) ServeHTTP1(c *http1.Conn, r *http1.Request) {
	proto := "HTTP/1.1"
	if r.Minor == 0 {
		proto = "HTTP/1.0"
	}
	if x := p.decide(c, r, proto); x != nil {
		x.Pass()
	}
}

// ServeHTTP2 decides r, and answers it or returns an exchange to be relayed.
func (p *Proxy) ServeHTTP2(s *http2.Stream, r *http1.Request) http2.Passing {
	if x := p.decide(s, r, "HTTP/2.0"); x != nil {
		return x
	}
	return nil
}

// decide decides r. It answers r, or returns an exchange to be relayed.
func (p *Proxy) decide(c client, r *http1.Request, proto string) *plainExchange {
	x := plainExchanges.Get().(*plainExchange)
	x.p, x.c, x.r, x.now = p, c, r, p.o.Now()
	x.peer = addrOf(c.RemoteAddr())
	x.trusted = p.trusted.Contains(x.peer)
	x.client = x.peer
	if x.trusted {
		x.readForwarded()
	}
	x.ask()
	if p.around.due(x.now) {
		p.around.look(x.peer, x.trusted, x.forwarded(), x.asked.Path)
	}
	p.o.Limiter.DecideTo(&x.decision, &x.asked, x.now)
	p.timed(x.now)
	if p.o.AccessLog != nil {
		x.line = requestLine{string(r.Method()), string(r.Host()), string(r.Target()), proto}
	}
	if x.decision.Verdict.Refused() {
		x.refuse()
	} else if status, why := p.unserved(&x.asked, borrow(r.Method()), &x.exchange); status != 0 {
		x.answer(status, why)
	} else {
		return x
	}
	x.end()
	return nil
}

// end logs the exchange and releases its memory.
func (x *plainExchange) end() {
	if x.p.o.AccessLog != nil {
		status, bytes := x.c.Sent()
		x.p.logRequest(&x.exchange, x.now, x.line, status, bytes)
	}
	if x.abandoned.Load() {
		return // it may still be in use
	}
	b := x.exchangeBuffers
	*x = plainExchange{} // in place: with anything in it, it would be made on the stack first
	x.exchangeBuffers = exchangeBuffers{b.host[:0], b.from[:0], b.chain[:0], b.lines[:0], b.names[:0], b.text[:0]}
	plainExchanges.Put(x)
}

// Pass relays the request, unless a rule counts by its answer and too many requests are abandoned.
func (x *plainExchange) Pass() {
	defer x.end()
	if !x.decision.CountsAnswer() || !x.p.abandoned.full() || x.waits() {
		x.relay()
	}
}

// waits waits until the request may be relayed although a rule counts its answer. Otherwise it answers
// the request and returns false.
func (x *plainExchange) waits() bool {
	p := x.p
	if !p.abandoned.waitForPlace(context.Background()) {
		x.lines = append(p.appendNode(x.lines), comeBack...)
		x.c.Answer(x.r, http.StatusServiceUnavailable, x.lines, unavailable)
		return false
	}
	// The client may have exceeded a limit in the meantime.
	x.now = p.o.Now()
	x.ask()
	if d := p.o.Limiter.Look(&x.asked, x.now); d.Verdict.Refused() {
		x.decision = d
		x.refuse()
		return false
	}
	return true
}

// refuse answers a refused request.
func (x *plainExchange) refuse() {
	if x.p.drops(&x.exchange) {
		x.c.Drop()
		return
	}
	x.c.Refuse(x.p.connections.scarce.Load() && !x.trusted)
	fields, status, body := x.p.refusal(x.p.appendNode(x.lines), &x.text, &x.exchange, x.now)
	x.lines = fields
	x.c.Answer(x.r, status, fields, body)
}

// ask sets x.asked, which is valid as long as the received request.
func (x *plainExchange) ask() {
	r := x.r
	path, query, _ := strings.Cut(borrow(r.Path()), "?")
	q := &x.asked
	*q = rule.Request{}
	q.Addr, q.Borrowed = x.client, true
	q.Method, q.Host, q.Path, q.Query = borrow(r.Method()), borrow(r.Host()), path, query
	q.Malformed = !validHost(q.Host) || !validEscapes(path)
	if x.p.o.Limiter.Rules().ReadsFields() {
		q.Header = headerOf(r)
	}
}

// borrow returns b as a string, which is valid until b changes.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// addrOf returns the address of p in the form that rules use.
func addrOf(a netip.AddrPort) netip.Addr { return a.Addr().Unmap().WithZone("") }

// Malformed answers an invalid HTTP/1.1 request.
func (p *Proxy) Malformed(c *http1.Conn, err *http1.Error) {
	now := p.o.Now()
	x := p.malformed(addrOf(c.RemoteAddr()), now)
	fields := p.appendNode(nil)
	switch {
	case p.drops(&x), x.decision.Verdict == limit.Denied:
		c.Drop()
	case x.decision.Verdict.Refused() && x.decision.Verdict != limit.Malformed:
		var text []byte
		fields, status, body := p.refusal(fields, &text, &x, now)
		c.Answer(nil, status, fields, body)
	default:
		c.Answer(nil, err.Status, append(fields, plainText...), err.Text+"\n")
	}
}

// MalformedHTTP2 counts an invalid HTTP/2 request. It returns fields for the answer, and whether the client is
// refused: then its connection must be closed.
func (p *Proxy) MalformedHTTP2(peer netip.AddrPort) (fields []byte, end bool) {
	x := p.malformed(addrOf(peer), p.o.Now())
	return p.appendNode(nil), x.decision.Verdict != limit.Malformed
}

// malformed counts a malformed request for its peer, unless that is a trusted proxy: then the client is
// unknown.
func (p *Proxy) malformed(peer netip.Addr, now time.Time) exchange {
	x := exchange{peer: peer, client: peer, trusted: p.trusted.Contains(peer), decision: limit.Decision{Verdict: limit.Malformed}}
	if !x.trusted {
		x.decision = p.o.Limiter.Decide(&rule.Request{Addr: peer, Malformed: true}, now)
	}
	return x
}

// readForwarded finds the client behind a trusted proxy.
func (x *plainExchange) readForwarded() {
	r := x.r
	var chain []string
	for f := range r.Fields {
		if f.Name != http1.XForwardedFor {
			continue
		}
		if len(x.chain) > 0 {
			x.chain = append(x.chain, ", "...)
		}
		x.chain = append(x.chain, r.ValueOf(f)...)
		chain = append(chain, borrow(r.ValueOf(f)))
	}
	x.client = x.p.client(x.peer, chain)
}

// forwarded reports whether the request has X-Forwarded-For.
func (x *plainExchange) forwarded() bool {
	for f := range x.r.Fields {
		if f.Name == http1.XForwardedFor {
			return true
		}
	}
	return false
}

// headerOf returns r's fields for rules.
func headerOf(r *http1.Request) map[string][]string {
	header := map[string][]string{}
	for f := range r.Fields {
		name := textproto.CanonicalMIMEHeaderKey(string(r.NameOf(f)))
		header[name] = append(header[name], string(r.ValueOf(f)))
	}
	return header
}

// validEscapes reports whether every percent sign begins an escape. Origins disagree about others.
func validEscapes(path string) bool {
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && (i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2])) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// appendNode appends the field that names the node.
func (p *Proxy) appendNode(dst []byte) []byte {
	if p.o.NodeHeader == "" {
		return dst
	}
	dst = append(append(dst, p.o.NodeHeader...), ": "...)
	return append(append(dst, p.o.NodeName...), "\r\n"...)
}

// relay relays the request to its origin.
func (x *plainExchange) relay() {
	x.host = append(x.host, x.r.Host()...)
	x.from = x.peer.AppendTo(x.from)
	x.seeFields()
	x.sent = x.now
	if err := x.c.Relay(x.r, x.origin.relayed, x); err != nil {
		x.failed(err)
	}
	if x.abandoned.Load() && !x.answered {
		x.p.resolve(&x.exchange, 0, nil)
	}
}

// Hasty reports whether a rule counts by the answer: then the client is watched from the start.
func (x *plainExchange) Hasty() bool { return x.decision.CountsAnswer() }

// Gone reports whether the exchange continues without its client, because a rule counts by the
// answer.
func (x *plainExchange) Gone(end func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered || !x.decision.CountsAnswer() || !x.p.abandon(&x.exchange, true, end) {
		return false
	}
	x.abandoned.Store(true)
	return true
}

// answer answers with a text from the node.
func (x *plainExchange) answer(status int, text string) {
	x.lines = append(x.p.appendNode(x.lines[:0]), plainText...)
	x.c.Answer(x.r, status, x.lines, text+"\n")
}

// Fields that a trusted peer may set, in the order of plainExchange.keeps.
var believed = [...]http1.Name{http1.XForwardedHost, http1.XForwardedProto, http1.Forwarded}

// seeFields records the request's fields that affect those that the node adds.
func (x *plainExchange) seeFields() {
	for f := range x.r.Fields {
		for i, name := range believed {
			x.keeps[i] = x.keeps[i] || x.trusted && f.Name == name
		}
	}
	x.names = x.r.AppendOptions(x.names)
}

// Keeps reports whether a field of the request is forwarded: not if the node sets it, or if CGI and
// similar interfaces read it as one that the node sets, strips, trusts or counts by.
func (x *plainExchange) Keeps(f *http1.Field, name []byte) bool {
	switch f.Name {
	case http1.XForwardedFor, http1.ProxyAuthenticate, http1.ProxyAuthorization:
		return false
	case http1.XForwardedHost, http1.XForwardedProto, http1.Forwarded:
		return x.trusted
	case http1.Other:
	default:
		return true
	}
	return !odd(name) || !x.p.shadows(string(name), []string{string(x.names)})
}

// AppendRequest appends the fields that describe the client to the origin.
func (x *plainExchange) AppendRequest(dst []byte) []byte {
	dst = append(dst, "X-Forwarded-For: "...)
	if len(x.chain) > 0 {
		dst = append(append(dst, x.chain...), ", "...)
	}
	dst = append(append(dst, x.from...), "\r\n"...)
	if !x.keeps[0] {
		dst = append(append(append(dst, "X-Forwarded-Host: "...), x.host...), "\r\n"...)
	}
	switch {
	case x.keeps[1]:
	case x.c.Secure():
		dst = append(dst, "X-Forwarded-Proto: https\r\n"...)
	default:
		dst = append(dst, "X-Forwarded-Proto: http\r\n"...)
	}
	return dst
}

// Answered counts the request by the origin's answer, and appends the client's quota fields.
func (x *plainExchange) Answered(dst []byte, a *http1.Answer) []byte {
	p, now := x.p, x.p.o.Now()
	p.metrics.origin.Observe(now.Sub(x.sent).Seconds())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
	if x.abandoned.Load() {
		p.resolve(&x.exchange, a.Status, a)
	} else {
		p.o.Limiter.Answered(&x.decision, a.Status, a, now)
	}
	dst = p.o.Headers.append(dst, p.o.Limiter, &x.decision, now)
	return p.appendNode(dst)
}

// failed answers for an origin that did not answer. Such answers are not counted.
func (x *plainExchange) failed(err error) {
	p := x.p
	var malformed *http1.Error
	timeout := errors.Is(err, context.DeadlineExceeded) || http1.IsTimeout(err)
	var relaying *http1.RelayError
	if errors.As(err, &relaying) && relaying.Client {
		p.metrics.failed[reasonClient].Inc()
		switch {
		case errors.As(err, &malformed):
			x.answer(malformed.Status, malformed.Text)
		case timeout:
			x.answer(http.StatusRequestTimeout, http.StatusText(http.StatusRequestTimeout))
		default:
			x.c.Gone(statusClientClosed)
		}
		return
	}
	switch {
	case timeout:
		p.metrics.failed[reasonTimeout].Inc()
		x.answer(http.StatusGatewayTimeout, "the origin did not answer in time")
	case errors.As(err, &malformed):
		p.metrics.failed[reasonOrigin].Inc()
		x.answer(http.StatusBadGateway, "the origin's answer is invalid: "+malformed.Text)
	default:
		p.metrics.failed[reasonOrigin].Inc()
		x.answer(http.StatusBadGateway, "the origin cannot be reached")
	}
	x.origin.logFailure(p.o.Logger, err)
}
