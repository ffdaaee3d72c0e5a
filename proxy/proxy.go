// Package proxy is the HTTP side of a node. It identifies the client, asks the limiter, and relays the request to the
// origin or answers it.
package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// Options configures a Proxy. Limiter and Logger are required. Requests without an origin get 421.
type Options struct {
	Limiter *limit.Limiter
	Origins Origins

	// Trusted are the networks of trusted proxies. The node believes their X-Forwarded-For.
	Trusted []netip.Prefix

	// Headers says which rate-limit headers clients get. If zero, Draft10.
	Headers HeaderStyle

	// StrictHosts answers 421 to requests for hosts that neither a rule nor Origins.ByHost names. By
	// default, the default origin serves them.
	StrictHosts bool

	// StrictMethods answers 501 to methods that differ from a registered one only in case. By default, requests with
	// such methods are forwarded.
	StrictMethods bool

	// Redirect is the port of https:// to which requests without TLS are redirected. If zero, they are relayed.
	Redirect int

	// NodeHeader is the name of a response header whose value is NodeName. If empty, it is not sent.
	NodeHeader, NodeName string

	// Connections bounds the connections of all clients, and ClientConnections those of one client, as
	// defined by Client. Connections of trusted proxies count only toward the former. If zero, open files
	// are the only limit.
	Connections, ClientConnections int
	Client                         rule.ClientPrefix

	// HeaderMemory bounds the memory of incomplete headers, handshakes and frames of all connections, in bytes, and
	// ClientHeaderMemory that of one client. Beyond that, the connections that hold the most are closed. Those of
	// trusted proxies count only toward the former. If zero, there is no limit.
	HeaderMemory, ClientHeaderMemory int

	// Now returns the time for the Limiter. If nil, time.Now.
	Now func() time.Time

	// AccessLog logs each request. If nil, requests are not logged.
	AccessLog *slog.Logger

	// Logger logs failures of origins.
	Logger *slog.Logger

	// Notice is called with the name of one of Problems and a description, which is empty if the problem does not
	// exist. It may be nil.
	Notice func(problem, text string)

	// Registerer registers the metrics. It may be nil.
	Registerer prometheus.Registerer
}

// A Proxy handles the requests of clients. It is safe for concurrent use.
type Proxy struct {
	o       Options
	trusted *bart.Lite
	metrics *metrics

	abandoned   *abandonedRequests
	tunnels     conns.Set[*http1.Conn]
	stopping    atomic.Bool // note must set asked
	asked       atomic.Bool // a request has arrived since AwaitQuiet last looked
	connections *connections
	warnings    lograte.Limiter
	environment environment
	altSvc      string // line that announces HTTP/3; empty without it
	node        string // line that names the node; may be empty
}

// New returns a Proxy.
func New(o Options) (*Proxy, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Proxy{
		o: o, trusted: new(bart.Lite), metrics: newMetrics(o.Registerer),
		abandoned: newAbandonedRequests(o.Registerer), connections: newConnections(&o),
		environment: environment{note: o.Notice},
	}
	if o.NodeHeader != "" {
		p.node = o.NodeHeader + ": " + o.NodeName + "\r\n"
	}
	for _, prefix := range o.Trusted {
		if !prefix.IsValid() {
			return nil, fmt.Errorf("proxy: invalid trusted network %v", prefix)
		}
		p.trusted.Insert(prefix.Masked())
	}
	return p, nil
}

const (
	// quiet is the pause between requests after which a stopping node closes its listeners and idle connections.
	quiet = time.Second

	// maxQuiet is the maximum time that the node waits for such a pause. Load balancers notice the stop within this time.
	// The node waits for at most half of the time it has for stopping, because requests in flight need the rest.
	maxQuiet = 5 * time.Second
)

// note records that a request has arrived.
func (p *Proxy) note() {
	if p.stopping.Load() {
		p.asked.Store(true)
	}
}

// AwaitQuiet waits until clients send no more requests, but at most maxQuiet, at most half of the time to ctx's
// deadline, and not after ctx is done. AskToLeave must be called first.
func (p *Proxy) AwaitQuiet(ctx context.Context) {
	p.stopping.Store(true)
	patience := maxQuiet
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(quiet):
		}
		if !p.asked.Swap(false) {
			return
		}
	}
}

// Drain waits until no abandoned request and no upgraded connection is left. If ctx is done first, it ends the
// remaining ones, and returns ctx's error if it ended requests. It must be called once, after the servers have stopped.
func (p *Proxy) Drain(ctx context.Context) error {
	a := &p.abandoned.exchanges
	err := a.Wait(ctx, func(*exchange) {})
	a.Close(func(x *exchange) { _ = x.Close() })
	<-a.Empty()
	if p.tunnels.Wait(ctx, func(*http1.Conn) {}) != nil {
		p.o.Logger.Warn("closing upgraded connections", "connections", p.tunnels.Len())
	}
	p.tunnels.Close((*http1.Conn).EndTunnel)
	return err
}

// Trusts reports whether addr is the address of a trusted proxy.
func (p *Proxy) Trusts(addr netip.AddrPort) bool { return p.trusted.Contains(conns.AddrOf(addr)) }

// identify sets x's client, from its peer and the values of X-Forwarded-For, and whether the request is the peer's own.
func (p *Proxy) identify(x *arrival, forwarded func() []string) {
	x.trusted, x.client = p.trusted.Contains(x.peer), p.o.Client.Unmap(x.peer)
	if x.trusted {
		chain := forwarded()
		x.own, x.client = len(chain) == 0, p.client(x.client, chain)
	}
}

// decide makes the decision for req, the request of x.
func (p *Proxy) decide(x *arrival, req *rule.Request, now time.Time) {
	own := x.own && !req.Malformed && p.o.Limiter.Rules().Access(x.client) != rule.Denied
	if own && p.environment.passOwn(now, x.client) {
		p.o.Limiter.Exempt(&x.decision, req)
	} else {
		p.o.Limiter.DecideTo(&x.decision, req, now)
	}
	if now.Nanosecond()&63 == 0 { // occasionally: reading the clock costs as much as the decision
		p.metrics.decision.Observe(p.o.Now().Sub(now).Seconds())
		p.environment.settle(now)
	}
}

// client returns the rightmost address in forwarded, the lines of X-Forwarded-For, that is not a trusted proxy. It
// treats the lines as one list and reads at most maxHops elements. It stops at an element that is not an address: the
// client is then the trusted proxy to the right, since only that proxy vouches for this element. If there is no
// element, the client is peer.
func (p *Proxy) client(peer netip.Addr, forwarded []string) netip.Addr {
	client, hops := peer, 0
	for _, rest := range slices.Backward(forwarded) {
		for comma := 0; comma >= 0; hops++ {
			comma = strings.LastIndexByte(rest, ',')
			addr, ok := forwardedAddr(strings.Trim(rest[comma+1:], " \t"))
			if !ok || hops == maxHops {
				return client
			}
			rest = rest[:max(comma, 0)]
			client = p.o.Client.Unmap(addr)
			if !p.trusted.Contains(addr) {
				return client
			}
		}
	}
	return client
}

// maxHops is the maximum number of trusted proxies that a request comes through. A longer list is forged.
const maxHops = 64

// forwardedAddr parses an element of X-Forwarded-For, to which some proxies add the port.
func forwardedAddr(s string) (addr netip.Addr, ok bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(s)
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), err == nil
}
