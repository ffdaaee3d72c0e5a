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
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/proxy"
	"github.com/edgelimit/edge/pop/rule"
)

// Options configures a Node. Name, Secret, an origin, and Rules or RuleFiles are required;
// the zero value of every other field is usable.
type Options struct {
	// Name identifies the node within the PoP.
	Name string

	// Version is the program version shown to operators.
	Version string

	// Secret makes the keys. It is the same on all nodes of a PoP and known to nobody else: at least 16
	// bytes. SecretFile is the file that holds it, if Secret is empty.
	Secret, SecretFile string

	// RuleFiles are rules files and directories of them. They are loaded when the node is
	// made, and again by Reload and when they change.
	RuleFiles []string

	// Rules are the rules if there are no RuleFiles.
	Rules *rule.Set

	// Listen and TLSListen are the addresses that clients connect to. Without any, Serve
	// is given listeners.
	Listen, TLSListen string

	// Listeners are open sockets that Start takes in place of opening one: for clients "http" and
	// "https", for operators "metrics" and "admin". Stop closes them.
	Listeners map[string]net.Listener

	// TLSCert and TLSKey are PEM files. They are read again by Reload and when they change.
	TLSCert, TLSKey string

	// MetricsListen is the address of the listener for metrics and health, AdminListen that of the API
	// for operators. If empty, the node has no such listener.
	MetricsListen, AdminListen string

	// AdminTokens is the file with the operators' tokens, see [admin.Tokens.Read]. It is read again by
	// Reload and when it changes. If empty, the node makes one token, for this machine.
	AdminTokens string

	// AdminPProf serves profiles of the process at AdminListen.
	AdminPProf bool

	// CheckListen is the address at which other proxies ask whether requests may pass, host:port or
	// unix:PATH, and SPOPListen that at which HAProxy does by its own protocol; see proxy.Check and
	// proxy.Agent. With one of them, a node needs no origin: it then opens no Listen.
	CheckListen, SPOPListen string

	// CheckDenyStatus is the status of all refusals at CheckListen; see proxy.CheckOptions. If zero,
	// each has its own.
	CheckDenyStatus int

	// Embedded says that the node only decides, with Admit and DecideBy, and needs no origin.
	Embedded bool

	// Origin is where requests go, HostOrigins where those to certain hosts go. See
	// proxy.NewOrigin for the form.
	Origin        string
	HostOrigins   map[string]string
	OriginOptions proxy.OriginOptions

	// Shards are the memcached servers that hold the PoP's counters, as host:port. Every
	// node is given the same, in the same spelling; their order does not matter. Without
	// any, the node has a shard of its own inside.
	Shards       []string
	ShardOptions memcached.Options

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

	// HTTPEngine serves the HTTP of clients. If zero, OwnEngine.
	HTTPEngine Engine

	// HTTP2Streams and HTTP2Overhead bound the HTTP/2 connections of OwnEngine: requests that are under
	// way, and frames beyond what requests need; see http2.Options. If zero, 128 and 1000.
	HTTP2Streams, HTTP2Overhead int

	Headers    proxy.HeaderStyle
	NodeHeader string // response header with the node's name; empty to send no such header

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

	// Connections is how many connections clients may have at once, ClientConnections how many each
	// one; see proxy.Options. If zero, 65536 and 32768; if negative, there is no limit.
	Connections, ClientConnections int

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

	// DecisionLog is the file for decisions about a sample of the keys, DecisionLogShare the fraction of
	// keys in the sample, the same on every node, and DecisionLogSize the maximum size in bytes; see
	// decision.Options. If DecisionLog is empty, there is no such log.
	DecisionLog      string
	DecisionLogShare float64
	DecisionLogSize  int64

	// Gossip lets the node talk with the other nodes of the PoP. Without its Listen, they
	// learn of its mitigations from the shards, unless there are Peers: a start with their next count
	// of the key, a lift within 30 s.
	Gossip GossipOptions

	// Peers replace the gossip.
	Peers Peers

	// MaxNodes is the maximum number of nodes in the PoP, even while some are replaced. If zero,
	// 16; if the node sees more at once, it counts with that number. Rules may have fewer
	// sub-windows then: see rule.Set.CheckNodes.
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

// withDefaults checks o and gives what is 0 its default.
func (o Options) withDefaults() (Options, error) {
	if err := o.check(); err != nil {
		return o, err
	}
	if addr, err := gossipAddr(o.Gossip.Listen); err == nil {
		o.Gossip.Listen = addr.String()
	}
	var err error
	o.TrustedProxies = slices.Clone(o.TrustedProxies)
	for i, prefix := range o.TrustedProxies {
		if o.TrustedProxies[i], err = rule.Unmap(prefix); err != nil {
			return o, fmt.Errorf("pop: TrustedProxies: %w", err)
		}
	}
	if o.asked() && o.Origin == "" && len(o.HostOrigins) == 0 {
		o.Listen = ""
	}
	o.BodyTimeout, o.BodyRate = max(o.BodyTimeout, 0), max(o.BodyRate, 0) // off
	o.Connections, o.ClientConnections = max(o.Connections, 0), max(o.ClientConnections, 0)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.MaxNodes = max(o.MaxNodes, counter.MinNodes)
	o.Logger = loggerOf(o)
	return o, nil
}

// asked reports whether other proxies ask the node.
func (o *Options) asked() bool { return o.CheckListen != "" || o.SPOPListen != "" }

// lonelyRefresh is the maximum time until a node with shards but no peers learns of a lift.
const lonelyRefresh = 30 * time.Second

// refresh returns how often the node reads records again, 0 for never.
func (o Options) refresh() time.Duration {
	if o.Gossip.Listen != "" || o.Peers != nil || len(o.Shards) == 0 {
		return 0
	}
	return lonelyRefresh
}

// id returns what tells the records of this node from those of others.
func (o Options) id() mitigation.NodeID { return idOf(o.Name) }

func idOf(name string) mitigation.NodeID {
	sum := sha256.Sum256([]byte(name))
	return mitigation.NodeID(binary.BigEndian.Uint64(sum[:]))
}

func (o Options) origins() (origins proxy.Origins, err error) {
	if o.Origin == "" && len(o.HostOrigins) == 0 && !o.Embedded && !o.asked() {
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
