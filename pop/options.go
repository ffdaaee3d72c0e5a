package pop

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/rule"
)

// Options configures a Node. Name, Secret, an origin, and Rules or RuleFiles are required;
// the zero value of every other field is usable.
type Options struct {
	// Name identifies the node within the PoP.
	Name string

	// Version is the program's version, as shown to operators.
	Version string

	// Secret is the key of all hashes. It is the same on all nodes of a PoP and known to nobody else: at least
	// 16 bytes. SecretFile is the file that contains it, if Secret is empty.
	Secret, SecretFile string

	// RuleFiles are rules files and directories of them. New and Reload load them, and so does the node when
	// they change.
	RuleFiles []string

	// Rules are used if there are no RuleFiles.
	Rules *rule.Set

	// Listen and TLSListen are the addresses that clients connect to. Without them, call Serve with listeners.
	Listen, TLSListen string

	// Listeners are open sockets that Start uses instead of opening its own: for clients "http" and "https",
	// for operators "metrics" and "admin". Stop closes them.
	Listeners map[string]net.Listener

	// TLSCert and TLSKey are PEM files. Reload reads them again, and so does the node when they change.
	TLSCert, TLSKey string

	// MetricsListen is the address of the listener for metrics and health checks, AdminListen that of the API
	// for operators. If empty, the node has no such listener.
	MetricsListen, AdminListen string

	// AdminTokens is the file with the operators' tokens, see [operate.Tokens.Read]. Reload reads it again, and
	// so does the node when it changes. If empty, the node generates a token for this machine.
	AdminTokens string

	// AdminPProf enables profiles of the process at AdminListen.
	AdminPProf bool

	// CheckListen is the address where other proxies ask whether requests may pass, host:port or unix:PATH, and
	// SPOPListen the one where HAProxy asks with its own protocol; see proxy.Check and proxy.Agent. With
	// either, a node needs no origin: without one it does not open Listen.
	CheckListen, SPOPListen string

	// SocketGroup is the ID of the group whose members may connect to CheckListen and SPOPListen if they are Unix
	// sockets. If zero, it is the node's own group.
	SocketGroup int

	// CheckDenyStatus is the status of all refusals at CheckListen; see proxy.CheckOptions. If zero, refusals
	// have their own statuses.
	CheckDenyStatus int

	// Embedded is set if the node only decides, by Admit and DecideBy, and needs no origin.
	Embedded bool

	// Origin is the destination of requests, HostOrigins the destinations for certain hosts. See
	// proxy.NewOrigin for the form.
	Origin        string
	HostOrigins   map[string]string
	OriginOptions proxy.OriginOptions

	// Shards are the memcached servers that hold the PoP's counters, as host:port. All nodes need the same
	// ones, in the same spelling; their order does not matter. Without any, the node embeds a shard.
	Shards       []string
	ShardOptions memcached.Options

	// ShardListen is the address, HOST:PORT, at which the node's embedded shard serves the whole PoP: nodes
	// find each other's shards by gossip. If empty, and without Shards, only this node uses the embedded shard.
	ShardListen string

	// TrustedProxies may name the client that they speak for: in X-Forwarded-For, and in the PROXY protocol if
	// ProxyProtocol is set.
	TrustedProxies []netip.Prefix
	ProxyProtocol  bool

	// Client is the part of an address that identifies a client. If zero, an IPv4 address or an IPv6 /64.
	Client rule.ClientPrefix

	// HTTP2Streams and HTTP2Overhead bound the HTTP/2 connections of package http2: concurrent requests, and frames
	// beyond what requests need; see http2.Options. If zero, 128 and 1000.
	HTTP2Streams, HTTP2Overhead int

	Headers    proxy.HeaderStyle
	NodeHeader string // name of the response header with the node's name; empty for none

	// Sizes and times of counting; see limit.Options.
	FlushInterval     time.Duration
	QueueSize         int
	TrackedKeys       int
	MitigationRecords int

	// ReadHeaderTimeout is the maximum time to read a request's header. If zero, 10 s.
	ReadHeaderTimeout time.Duration

	// IdleTimeout is the maximum time of a connection without a request. If zero, 2 min.
	IdleTimeout time.Duration

	// BodyTimeout is the maximum pause of a client within a body, and before it reads more of an answer. If
	// zero, 1 min; if negative, there is no limit.
	BodyTimeout time.Duration

	// StrictHosts refuses hosts that neither rules nor origins name, StrictMethods refuses methods that
	// differ from a registered one only in case; see proxy.Options.
	StrictHosts, StrictMethods bool

	// BodyRate is the minimum average rate of a request's body, in bytes per second; see http1.Limits. If
	// zero, 240; if negative, there is no limit.
	BodyRate int

	// Connections is the maximum number of clients' connections, ClientConnections that of each client; see
	// proxy.Options. If zero, 65536 and 32768; if negative, there is no limit.
	Connections, ClientConnections int

	// HeaderMemory is the maximum memory of incomplete headers, handshakes and frames, in bytes, ClientHeaderMemory
	// that of each client; see proxy.Options. If zero, 64 MiB and 4 MiB; if negative, there is no limit.
	HeaderMemory, ClientHeaderMemory int

	// DrainTimeout is the maximum time that Stop waits for requests to end. If zero, 30 s.
	DrainTimeout time.Duration

	// MaxHeaderBytes is the maximum size of a request's header. If zero, 64 KiB.
	MaxHeaderBytes int

	// Now returns the time by which requests are counted, mitigations end and shards leave the ring. If nil,
	// time.Now.
	Now func() time.Time

	AccessLog  bool // log a line for each request
	LogClients bool // log the client of each mitigation
	Logger     *slog.Logger

	// AddMetrics registers further metrics beside the node's own. May be nil.
	AddMetrics func(prometheus.Registerer)

	// DecisionLog is the file for decisions about a sample of the keys, DecisionLogShare the fraction of keys
	// in the sample, the same on every node, and DecisionLogSize the maximum size in bytes; see
	// decision.Options. If DecisionLog is empty, there is no such log.
	DecisionLog      string
	DecisionLogShare float64
	DecisionLogSize  int64

	// Gossip connects the node to the other nodes of the PoP. If its Listen is empty, and there are no Peers,
	// they learn of its mitigations from the shards: of a start with their next count of the key, of a lift
	// within 30 s.
	Gossip GossipOptions

	// Peers replaces the gossip.
	Peers Peers

	// MaxNodes is the maximum number of nodes in the PoP, even while some are replaced. If zero, 16. If the
	// node sees more, it uses the greater number. Then rules may have fewer sub-windows: see
	// rulefile.CheckNodes.
	MaxNodes int

	// set if all nodes of the PoP stop together: clients have nowhere to go
	together bool

	// told, unless it is nil, is called when the peers have been sent a record of this node
	told func(mitigation.Record)
}

// GossipOptions configures a node's gossip; see gossip.Options.
type GossipOptions struct {
	Listen, Advertise string
	Join              []string

	// Keys are the keys, unless KeyFile has them, base64-encoded, one per line. The first one encrypts. Reload
	// reads the file again, and so does the node when it changes.
	Keys    [][]byte
	KeyFile string
}

// withDefaults checks o and replaces zero values with their defaults.
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
	o.HeaderMemory, o.ClientHeaderMemory = max(o.HeaderMemory, 0), max(o.ClientHeaderMemory, 0)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.MaxNodes = max(o.MaxNodes, counter.MinNodes)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o, nil
}

// asked reports whether other proxies ask the node.
func (o *Options) asked() bool { return o.CheckListen != "" || o.SPOPListen != "" }

// lonelyRefresh is the maximum time until a node with shards but no peers learns of a lift.
const lonelyRefresh = 30 * time.Second

// refresh returns the interval at which the node reads records again, or 0 for never.
func (o Options) refresh() time.Duration {
	if o.Gossip.Listen != "" || o.Peers != nil || len(o.Shards) == 0 {
		return 0
	}
	return lonelyRefresh
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
