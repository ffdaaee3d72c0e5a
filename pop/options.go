package pop

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/proxy"
	"github.com/edgelimit/edge/pop/rule"
)

// Options configures a Node. Name, Secret, an origin, and Rules or RuleFiles are required;
// the zero value of every other field is usable.
type Options struct {
	// Name tells the nodes of a PoP apart.
	Name string

	// Secret makes the keys. All nodes of a PoP have the same, and nobody else has: 16
	// bytes at least.
	Secret string

	// RuleFiles are rules files and directories of them. They are loaded when the node is
	// made, and again by Reload and when they change.
	RuleFiles []string

	// Rules are the rules if there are no RuleFiles.
	Rules *rule.Set

	// Listen and TLSListen are the addresses that clients connect to. Without any, Serve
	// is given listeners.
	Listen, TLSListen string

	// TLSCert and TLSKey are PEM files. They are read again by Reload and when they change.
	TLSCert, TLSKey string

	// MetricsListen is the address of the operators' listener. If empty, there is none.
	MetricsListen string

	// Origin is where requests go, HostOrigins where those to certain hosts go. See
	// proxy.NewOrigin for the form.
	Origin        string
	HostOrigins   map[string]string
	OriginOptions proxy.OriginOptions

	// Shards are the memcached servers that hold the PoP's counters, as host:port. Every
	// node is given the same, in the same spelling; their order does not matter. Without
	// any, the node has a shard of its own inside.
	Shards       []string
	ShardOptions counter.ShardOptions

	// ShardListen is the address, HOST:PORT, of a shard inside of this node for the whole
	// PoP: the shards of all nodes that have one are found by gossip. If empty, and no
	// Shards are given, the shard inside is this node's alone.
	ShardListen string

	// TrustedProxies are believed about whom they speak for: by X-Forwarded-For, and by
	// the PROXY protocol if ProxyProtocol is set.
	TrustedProxies []netip.Prefix
	ProxyProtocol  bool

	// Client says which part of an address is one client. If zero, an IPv4 address, an
	// IPv6 /64.
	Client rule.ClientPrefix

	// HTTPEngine serves the HTTP/1.1 of clients. If zero, NetHTTP.
	HTTPEngine Engine

	Headers    proxy.HeaderStyle
	NodeHeader string // response header with the node's name; if empty, there is none

	// Sizes and times of the counting work; see limit.Options.
	FlushInterval     time.Duration
	QueueSize         int
	TrackedKeys       int
	MitigationRecords int

	// ReadHeaderTimeout bounds reading a request's header. If zero, 10 s.
	ReadHeaderTimeout time.Duration

	// IdleTimeout is how long a connection is kept without a request. If zero, 2 min.
	IdleTimeout time.Duration

	// BodyTimeout is how long a client may pause within a body, and leave an answer
	// unread. If zero, 1 min; if negative, there is no limit.
	BodyTimeout time.Duration

	// StrictHosts and StrictMethods refuse hosts that nothing names, and methods in another
	// case; see proxy.Options.
	StrictHosts, StrictMethods bool

	// BodyRate is how many bytes of a request's body a client has to send each second, on
	// average; see proxy.Options. If zero, 240; if negative, there is no limit.
	BodyRate int

	// AbandonedRequests is how many requests may wait for the origin's answer without their
	// clients; see proxy.Options. If zero, 1024.
	AbandonedRequests int

	// DrainTimeout is how long Stop waits for requests to end. If zero, 30 s.
	DrainTimeout time.Duration

	// MaxHeaderBytes bounds a request's header. If zero, 64 KiB.
	MaxHeaderBytes int

	// Now reads the node's clock, by which requests are counted, mitigations end and shards
	// leave the ring. If nil, time.Now.
	Now func() time.Time

	AccessLog  bool // a line for each request
	LogClients bool // lines about mitigations name the client
	Logger     *slog.Logger

	// Gossip lets the node talk with the other nodes of the PoP. If nil, they learn of its
	// mitigations from the shards, unless there are Peers: of those that start with their
	// next count of the key, of those that are lifted within 30 s.
	Gossip *GossipOptions

	// Peers replace the gossip.
	Peers Peers

	// MaxNodes is how many nodes the PoP has at most, also while some are replaced. If zero,
	// 16; where the node hears of more at once, it reckons with those. Rules may have fewer
	// sub-windows then: see count.CheckNodes.
	MaxNodes int

	// All nodes of the PoP stop together: clients have nowhere to go.
	together bool
}

// GossipOptions configures a node's gossip; see gossip.Options.
type GossipOptions struct {
	Listen, Advertise string
	Join              []string

	// Keys are the keys, the first one for what is sent, unless KeyFile has them: in base64,
	// each in a line of its own. It is read again by Reload and when it changes.
	Keys    [][]byte
	KeyFile string
}

// errNoSecret is what New says where a node would count under keys that everybody can
// make.
var errNoSecret = errors.New("pop: a node that is given shards needs a secret, the same on every node of the PoP")

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Name == "":
		return o, errors.New("pop: a node needs a name")
	case o.Secret == "" && len(o.Shards) > 0:
		return o, errNoSecret
	case o.Rules == nil && len(o.RuleFiles) == 0:
		return o, errors.New("pop: a node needs rules")
	case o.Rules != nil && len(o.RuleFiles) > 0:
		return o, errors.New("pop: rules are given twice, as a set and as files")
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return o, errors.New("pop: a certificate needs a key, and a key a certificate")
	case (o.TLSListen == "") != (o.TLSCert == ""):
		return o, errors.New("pop: a TLS listener needs a certificate, and a certificate a TLS listener")
	case o.ShardListen != "" && len(o.Shards) > 0:
		return o, errors.New("pop: Shards and ShardListen contradict each other")
	case o.ShardListen != "" && o.Gossip == nil:
		return o, errors.New("pop: nodes find each other's shards by gossip, and there is none")
	case o.ShardListen != "" && o.Secret == "":
		return o, errNoSecret
	case o.Gossip != nil && o.Peers != nil:
		return o, errors.New("pop: Gossip and Peers contradict each other")
	case o.ProxyProtocol && len(o.TrustedProxies) == 0:
		return o, errors.New("pop: the PROXY protocol needs trusted proxies: anybody could send its header")
	case o.MaxNodes < 0:
		return o, fmt.Errorf("pop: a PoP cannot have %d nodes", o.MaxNodes)
	case o.BodyTimeout < 0:
		o.BodyTimeout = 0
	case o.BodyTimeout == 0:
		o.BodyTimeout = time.Minute
	}
	switch {
	case o.BodyRate < 0:
		o.BodyRate = 0
	case o.BodyRate == 0:
		o.BodyRate = 240
	}
	for _, addr := range o.Shards {
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			return o, fmt.Errorf("pop: shard %q is not host:port", addr)
		}
	}
	for what, d := range map[string]*time.Duration{"read header": &o.ReadHeaderTimeout, "idle": &o.IdleTimeout, "drain": &o.DrainTimeout} {
		if *d < 0 {
			return o, fmt.Errorf("pop: a %s timeout of %v is negative", what, *d)
		}
	}
	if o.ReadHeaderTimeout == 0 {
		o.ReadHeaderTimeout = 10 * time.Second
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 2 * time.Minute
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 30 * time.Second
	}
	if o.MaxHeaderBytes < 0 {
		return o, fmt.Errorf("pop: a header of %d bytes at most is none", o.MaxHeaderBytes)
	}
	if o.MaxHeaderBytes == 0 {
		o.MaxHeaderBytes = 64 << 10
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.MaxNodes = max(o.MaxNodes, count.MinNodes)
	o.Logger = loggerOf(o)
	return o, nil
}

// lonelyRefresh is after how long a node that has shards and no peers hears of a lift.
const lonelyRefresh = 30 * time.Second

// refresh returns how often the node reads records again, 0 for never.
func (o Options) refresh() time.Duration {
	if o.Gossip != nil || o.Peers != nil || len(o.Shards) == 0 {
		return 0
	}
	return lonelyRefresh
}

// id returns what tells the records of this node from those of others.
func (o Options) id() mitigation.NodeID {
	sum := sha256.Sum256([]byte(o.Name))
	return mitigation.NodeID(binary.BigEndian.Uint64(sum[:]))
}

func (o Options) origins() (origins proxy.Origins, err error) {
	if o.Origin == "" && len(o.HostOrigins) == 0 {
		return origins, errors.New("pop: a node needs an origin")
	}
	if o.Origin != "" {
		if origins.Default, err = proxy.NewOrigin(o.Origin, o.OriginOptions); err != nil {
			return origins, err
		}
	}
	origins.ByHost = map[string]*proxy.Origin{}
	for host, text := range o.HostOrigins {
		host = proxy.CanonicalHost(host)
		if origins.ByHost[host] != nil {
			return origins, fmt.Errorf("pop: host %s has two origins", host)
		}
		if origins.ByHost[host], err = proxy.NewOrigin(text, o.OriginOptions); err != nil {
			return origins, err
		}
	}
	return origins, nil
}

// server returns an HTTP server that speaks protocols. base is cancelled when connections that
// are no longer HTTP have to end.
func (o Options) server(handler http.Handler, protocols http.Protocols, base context.Context) *http.Server {
	return &http.Server{
		Handler:           handler,
		Protocols:         &protocols,
		ReadHeaderTimeout: o.ReadHeaderTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    o.MaxHeaderBytes,
		// Else net/http would answer OPTIONS *, to mitigated clients as well.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  o.IdleTimeout,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: o.BodyTimeout,
		},
		ConnContext: proxy.ConnContext,
		ConnState:   proxy.ConnState,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
}

// loggerOf returns the logger that o says.
func loggerOf(o Options) *slog.Logger {
	if o.Logger == nil {
		return slog.Default()
	}
	return o.Logger
}
