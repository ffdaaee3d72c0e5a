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
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/pop/shards"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// Options configures a Node. Name, Secret, an origin, and Rules or RuleFiles are required; the zero value of every
// other field is usable. [Settings] describes most fields, with their bounds and defaults. Here 0 means the default.
// Where 0 turns something off in the setting, use a negative value.
type Options struct {
	Version string // of the program, as shown to operators

	// The node. New and Reload load the files, and so does the node when they change.
	Name, PoP                  string
	RuleFiles                  []string
	Rules                      *rule.Set // instead of RuleFiles
	Listen, TLSListen          string    // without them, call Serve with listeners
	HTTP3Listen                string
	TLSCert, TLSKey            string
	TLSCerts                   []string // see docs/tls.md
	TLSRedirect                int
	MetricsListen, AdminListen string
	AdminTokens                string // see [operate.Tokens.Read]
	AdminPProf                 bool

	// Listeners are open sockets that Start uses instead of opening its own: for clients "http" and "https",
	// for operators "metrics" and "admin". Stop closes them.
	Listeners map[string]net.Listener

	// Origins. Embedded is set if requests come only by Admit and DecideBy: then the node needs no origin.
	Embedded      bool
	Origin        string // see proxy.NewOrigin for the form
	ACMEOrigin    string
	HostOrigins   map[string]string
	OriginOptions proxy.OriginOptions

	// Proxies that ask the node about requests. With either listener, a node needs no origin; without one, it does not
	// open Listen.
	CheckListen, SPOPListen string // see proxy.Check and proxy.Agent
	CheckDenyStatus         int
	SocketGroup             int // ID of the group whose members may connect to Unix sockets; 0: the node's own

	// The PoP. All nodes need the same shards, in the same spelling; their order does not matter. Without Gossip and
	// Peers, nodes learn of mitigations from the shards: of a new one when they next count the key, of a lift within 30 s.
	Secret, SecretFile string // at most one of them
	Shards             []string
	ShardOptions       wire.Options
	ShardListen        string
	Gossip             GossipOptions
	Peers              Peers // replaces the gossip
	MaxNodes           int   // if the node sees more nodes, their number counts instead; see rulefile.CheckNodes

	// Clients.
	TrustedProxies                   []netip.Prefix
	ProxyProtocol                    bool
	Client                           rule.ClientPrefix
	StrictHosts, StrictMethods       bool
	Connections, ClientConnections   int
	http1.Limits                     // 0: the default, as for the other fields
	HeaderMemory, ClientHeaderMemory int
	DrainTimeout                     time.Duration

	// Counting.
	FlushInterval                             time.Duration
	QueueSize, TrackedKeys, MitigationRecords int

	// Responses and logs.
	Headers          proxy.HeaderStyle
	NodeHeader       string
	AccessLog        bool
	LogClients       bool
	DecisionLog      string
	DecisionLogShare float64
	DecisionLogSize  int64
	Logger           *slog.Logger

	// Now is the clock for counting, for the end of mitigations and for the ring. If nil, time.Now.
	Now func() time.Time

	// AddMetrics registers metrics in addition to the node's own. May be nil.
	AddMetrics func(prometheus.Registerer)

	local *Local // that the node is part of; nil for a node on its own

	shards []shards.Address // Shards, once they are checked
}

// GossipOptions configures a node's gossip; see gossip.Options. Set at most one of Keys and KeyFile.
type GossipOptions struct {
	Listen, Advertise string
	Join              []string
	Keys              [][]byte
	KeyFile           string
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
	if o.Now == nil {
		o.Now = time.Now
	}
	o.MaxNodes = max(o.MaxNodes, counter.MinNodes)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o, nil
}

// asked reports whether other proxies may ask the node about requests.
func (o *Options) asked() bool { return o.CheckListen != "" || o.SPOPListen != "" }

// lonelyRefresh is the maximum time until a node with shards but no peers learns of a lift.
const lonelyRefresh = 30 * time.Second

// origins returns the origins, whose URLs have been checked.
func (o Options) origins() (proxy.Origins, error) {
	var errs []error
	origin := func(text string) *proxy.Origin {
		if text == "" {
			return nil
		}
		origin, err := proxy.NewOrigin(text, o.OriginOptions)
		errs = append(errs, err)
		return origin
	}
	origins := proxy.Origins{Default: origin(o.Origin), ACME: origin(o.ACMEOrigin), ByHost: map[string]*proxy.Origin{}}
	for host, text := range o.HostOrigins {
		origins.ByHost[proxy.CanonicalHost(host)] = origin(text)
	}
	return origins, errors.Join(errs...)
}
