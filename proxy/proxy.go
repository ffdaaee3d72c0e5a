// Package proxy is the HTTP side of a node. It identifies the client, asks the limiter, and relays the request to the
// origin or answers it.
package proxy

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy/conns"
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
	upgrades    conns.Set[*exchange] // requests to switch protocols, and connections that have switched
	lameDuck    lameDuck
	connections *connections
	warnings    lograte.Limiter
	environment environment
	altSvc      string // line that announces HTTP/3; empty without it
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
	for _, prefix := range o.Trusted {
		if !prefix.IsValid() {
			return nil, fmt.Errorf("proxy: invalid trusted network %v", prefix)
		}
		p.trusted.Insert(prefix.Masked())
	}
	return p, nil
}
