// Package proxy is the HTTP side of a node: it finds out who the client is, asks the
// limiter, and passes the request on to the origin or answers it.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/pop/http1"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// Options configures a Proxy. Limiter is required; the zero value of every other field is
// usable. Requests without an origin are answered with 421.
type Options struct {
	Limiter *limit.Limiter
	Origins Origins

	// Trusted are the networks of proxies whose X-Forwarded-For is trusted.
	Trusted []netip.Prefix

	// Headers says which rate-limit headers clients see. If zero, Draft10.
	Headers HeaderStyle

	// StrictHosts refuses hosts that neither a rule nor Origins.ByHost names with 421. By
	// default the default origin serves them.
	StrictHosts bool

	// StrictMethods refuses methods that differ from a registered one only in case with 501.
	// By default they are forwarded as they came.
	StrictMethods bool

	// NodeHeader names a response header that tells which node answered, as NodeName.
	// If empty, no such header is sent.
	NodeHeader, NodeName string

	// BodyTimeout is how long a client may leave the node waiting for the next bytes of a
	// request's body, or for room to write the next bytes of an answer. If zero, there is
	// no limit.
	BodyTimeout time.Duration

	// AbandonedRequests is how many requests may wait for the origin's answer without their
	// clients, because a rule counts by it. While there are more, new requests under such
	// rules wait for a second at most and then get 503. If zero, 1024.
	AbandonedRequests int

	// Connections bounds the connections of all clients, ClientConnections those of one client, as
	// Client defines it. Connections of trusted proxies count only for the former. If zero, open
	// files are the only limit.
	Connections, ClientConnections int
	Client                         rule.ClientPrefix

	// BodyRate is how many bytes of a request's body a client has to send each second, on
	// average, until the origin begins its answer. It may fall behind by BodyTimeout, or a
	// minute if that is zero. If zero, there is no such limit.
	BodyRate int

	// Now reads the node's clock, as it is told to the Limiter. If nil, time.Now.
	Now func() time.Time

	// AccessLog gets a line for each request. If nil, there is no access log.
	AccessLog *slog.Logger

	// Logger gets what goes wrong with origins. If nil, slog.Default().
	Logger *slog.Logger

	// Notice is told about problems with the proxies in front, see Problems, and with an empty text that
	// one has passed. May be nil.
	Notice func(problem, text string)

	// Registerer registers the metrics. If nil, they are not registered.
	Registerer prometheus.Registerer
}

// A Proxy handles the requests of clients. It may be used by any number of servers at once.
type Proxy struct {
	o       Options
	trusted *bart.Lite
	forward httputil.ReverseProxy
	metrics *metrics

	abandoned   *abandoned
	connections *connections
	warnings    lograte.Limiter
	around      surroundings
}

// New returns a Proxy.
func New(o Options) (*Proxy, error) {
	if o.Limiter == nil {
		return nil, errors.New("proxy: Limiter is required")
	}
	if o.AbandonedRequests < 0 {
		return nil, fmt.Errorf("proxy: invalid AbandonedRequests %d: must not be negative", o.AbandonedRequests)
	}
	if o.AbandonedRequests == 0 {
		o.AbandonedRequests = 1024
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	p := &Proxy{
		o: o, trusted: new(bart.Lite), metrics: newMetrics(o.Registerer),
		abandoned: newAbandoned(o.AbandonedRequests, o.Registerer), connections: newConnections(&o), around: surroundings{note: o.Notice},
	}
	for _, prefix := range o.Trusted {
		if !prefix.IsValid() {
			return nil, fmt.Errorf("proxy: trusted network %v is not valid", prefix)
		}
		p.trusted.Insert(prefix.Masked())
	}
	p.forward = httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      roundTripper{p},
		ModifyResponse: p.answered,
		ErrorHandler:   p.failed,
		BufferPool:     new(buffers),
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// An exchange is one request on its way through the proxy.
type exchange struct {
	decision limit.Decision
	origin   *Origin
	peer     netip.Addr // who is connected
	trusted  bool       // whether that is a trusted proxy
	client   netip.Addr
	header   http.Header // of the answer
	body     *body
	sent     time.Time // when the origin was asked
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// ServeHTTP decides about r, then passes it on or answers it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := p.o.Now()
	if c := connOf(r); c != nil {
		defer c.begin(r)()
	}
	x := new(exchange)
	req := p.decideHTTP(x, r, now)
	if p.o.AccessLog != nil {
		logged := &loggedWriter{ResponseWriter: w}
		w = logged
		defer p.logAccess(r, x, logged, now)
	}
	x.header = w.Header()
	p.sign(x)
	if x.decision.Verdict.Refused() {
		p.early(w, r)
		p.refuse(w, r, x, now)
		return
	}
	if status, why := p.unserved(&req, r.Method, x); status != 0 {
		p.early(w, r)
		http.Error(w, why, status)
		return
	}
	if !x.decision.CountsAnswer() || !p.abandoned.full() || p.hasPlace(w, r, x) {
		p.pass(w, r, x)
	}
}

// hasPlace waits until r may pass because fewer requests are abandoned. It answers r, and returns false, if
// that takes too long or its client exceeds a limit meanwhile.
func (p *Proxy) hasPlace(w http.ResponseWriter, r *http.Request, x *exchange) bool {
	if !p.abandoned.waitForPlace(r.Context()) {
		p.early(w, r)
		setLines(w.Header(), []byte(comeBack))
		writeAnswer(w, r, http.StatusServiceUnavailable, unavailable)
		return false
	}
	req, now := x.request(r), p.o.Now()
	if d := p.o.Limiter.Look(&req, now); d.Verdict.Refused() {
		x.decision = d
		p.early(w, r)
		p.refuse(w, r, x, now)
		return false
	}
	return true
}

// decideHTTP finds out who sent r, which arrived at now, and decides it. It returns r as the limiter
// sees it.
func (p *Proxy) decideHTTP(x *exchange, r *http.Request, now time.Time) rule.Request {
	x.peer = peer(r)
	x.trusted = p.trusted.Contains(x.peer)
	x.client = x.peer
	if x.trusted {
		x.client = p.client(x.peer, r.Header["X-Forwarded-For"])
	}
	req := x.request(r)
	if p.around.due(now) {
		p.around.look(x.peer, x.trusted, len(r.Header["X-Forwarded-For"]) > 0, req.Path)
	}
	x.decision = p.o.Limiter.Decide(&req, now)
	p.timed(now)
	return req
}

// timed occasionally measures how long a decision took that began at now. Reading the clock costs as
// much as the decision.
func (p *Proxy) timed(now time.Time) {
	if now.Nanosecond()&63 == 0 {
		p.metrics.decision.Observe(p.o.Now().Sub(now).Seconds())
	}
}

// unserved finds the origin of a request that came with method, of which req is the canonical
// form. If it may not pass,
// it returns the status to answer with, and why.
func (p *Proxy) unserved(req *rule.Request, method string, x *exchange) (status int, why string) {
	x.origin = p.o.Origins.of(req.Host)
	switch {
	case req.Method == http.MethodConnect || req.Method == http.MethodTrace:
		return http.StatusMethodNotAllowed, "method not allowed"
	case p.o.StrictMethods && req.Method != method:
		return http.StatusNotImplemented, "methods are told apart by case"
	case p.o.StrictHosts && p.o.Origins.ByHost[req.Host] == nil && !p.o.Limiter.Rules().Names(req.Host):
		return http.StatusMisdirectedRequest, "no site for this host"
	case x.origin == nil:
		return http.StatusMisdirectedRequest, "no origin for this host"
	}
	return 0, ""
}

// request returns r as it was received, for the limiter.
func (x *exchange) request(r *http.Request) rule.Request {
	return rule.Request{
		Addr:      x.client,
		Method:    r.Method,
		Host:      r.Host,
		Path:      r.URL.EscapedPath(),
		Query:     r.URL.RawQuery,
		Header:    r.Header,
		Malformed: malformed(r),
	}
}

// sign says which node answers.
func (p *Proxy) sign(x *exchange) {
	if p.o.NodeHeader != "" {
		x.header[p.o.NodeHeader] = []string{p.o.NodeName}
	}
}

// pass sends r to its origin.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, x *exchange) {
	control := http.NewResponseController(w)
	if r.Body != http.NoBody {
		x.body = newBody(r, control, &p.o)
		r.Body = x.body
		if r.ProtoMajor == 1 {
			// The origin may answer before it has the whole request. Not every writer can.
			_ = control.EnableFullDuplex()
			defer x.body.leave()
		}
	}
	if p.o.BodyTimeout > 0 {
		w = &timedWriter{ResponseWriter: w, control: control, timeout: p.o.BodyTimeout, http2: r.ProtoMajor == 2}
	}
	x.sent = p.o.Now()
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	if p.o.BodyTimeout > 0 && r.ProtoMajor == 1 {
		// The answer's end is written after the handler, however long ago the last part was.
		_ = control.SetWriteDeadline(time.Now().Add(p.o.BodyTimeout))
	}
}

// rewrite makes the request that the origin gets.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In)
	pr.Out.URL.Scheme, pr.Out.URL.Host = x.origin.scheme, x.origin.host
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as it came, not as Go would write it
	pr.Out.Host = pr.In.Host
	pr.Out.Trailer = pr.In.Trailer // filled in when the body has been read
	if x.trusted {
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	}
	pr.SetXForwarded()
	if x.trusted {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
			if v, ok := pr.In.Header[name]; ok {
				pr.Out.Header[name] = v
			}
		}
	}
	if http1.IsHTTP([]byte(pr.Out.Header.Get("Upgrade"))) {
		// What came by that connection would pass uncounted.
		pr.Out.Header.Del("Upgrade")
		pr.Out.Header.Del("Connection")
	}
	p.dropShadows(pr.Out.Header, pr.In.Header)
	if _, ok := pr.Out.Header["User-Agent"]; !ok {
		pr.Out.Header["User-Agent"] = nil // else the transport would add its own
	}
}

// answered sees the origin's answer before the client does.
func (p *Proxy) answered(resp *http.Response) error {
	x := exchangeOf(resp.Request)
	now := p.o.Now()
	p.metrics.origin.Observe(now.Sub(x.sent).Seconds())
	if x.body != nil {
		x.body.answered.Store(true)
	}
	if x.body != nil && resp.Request.ProtoMajor == 1 && !x.body.ended.Load() {
		// net/http panics where the rest of a body comes after the answer.
		x.header["Connection"] = []string{"close"}
	}
	if _, ok := resp.Header["Content-Type"]; !ok {
		x.header["Content-Type"] = nil // else net/http would guess one from the body
	}
	p.o.Limiter.Answered(&x.decision, resp.StatusCode, resp.Header, now)
	// Not into the answer's header, which is copied in Go's spelling; and again what an
	// interim answer has cleared.
	p.o.Headers.write(x.header, p.o.Limiter, &x.decision, now)
	p.sign(x)
	return nil
}

// failed answers for an origin that did not. Such answers are not counted.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	var timeout net.Error
	switch {
	case x.body.err() != nil:
		// The client's doing: its body came malformed or too slowly.
		p.metrics.failed[reasonClient].Inc()
		status := http.StatusBadRequest
		if errors.As(x.body.err(), &timeout) && timeout.Timeout() {
			status = http.StatusRequestTimeout
		}
		w.Header().Set("Connection", "close")
		http.Error(w, http.StatusText(status), status)
		return
	case r.Context().Err() != nil:
		p.metrics.failed[reasonClient].Inc()
		// Nobody reads this, but the access log shows it.
		w.WriteHeader(statusClientClosed)
		return
	case errors.As(err, &timeout) && timeout.Timeout():
		p.metrics.failed[reasonTimeout].Inc()
		http.Error(w, "the origin did not answer in time", http.StatusGatewayTimeout)
	default:
		p.metrics.failed[reasonOrigin].Inc()
		http.Error(w, "the origin cannot be reached", http.StatusBadGateway)
	}
	x.origin.logFailure(p.o.Logger, err)
}

// statusClientClosed is what nginx logs where the client went away.
const statusClientClosed = 499
