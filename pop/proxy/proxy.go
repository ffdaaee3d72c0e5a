// Package proxy is the HTTP side of a node: it finds out who the client is, asks the
// limiter, and passes the request on to the origin or answers it.
package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httputil"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/lograte"
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
	p.forward = p.newForward()
	return p, nil
}
