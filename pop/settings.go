package pop

import (
	"encoding/base64"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/pop/gossip"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/pop/shards"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/rule"
)

// Bounds of sizes and times. Greater values are mistakes.
const (
	maxKeys  = 1 << 24
	MaxNodes = 1 << 20
	maxTime  = 7 * 24 * time.Hour
)

// Settings returns the settings of a node, which set the fields of o. Fields of Options have the
// same bounds and, if they are 0, the same defaults.
//
// A new setting is a field of [Options], and one row here, with what it does, in the group where
// operators look for it:
//
//	{Name: "idle-timeout", Value: setting.Duration(&o.IdleTimeout, 2*time.Minute, 1, maxTime), Help: "time after which an idle connection is closed"},
//
// Then `go test ./cmd/edge -run Settings -update` rewrites testdata/node.yaml and docs/settings.md. If the
// names of field and setting differ, add them to TestEverySettingArrives. Settings that a row needs
// or contradicts are columns of it; other checks of several settings are in check.
func Settings(o *Options) []setting.Setting {
	g := &o.Gossip
	if o.Client.NAT64 == nil {
		o.Client.NAT64 = new([]netip.Prefix)
	}
	hostname, _ := os.Hostname()
	return []setting.Setting{
		{Group: "the node", Name: "name", Value: setting.Text(&o.Name, hostname, checkName), Help: "name of the node, unique in the PoP", Single: true, Sample: "edge-1"},
		{Name: "pop", Value: setting.Text(&o.PoP, "", checkName), Help: "name of the PoP, for monitoring, the same on every node", Sample: "ams"},
		{Name: "rules", Value: setting.List(&o.RuleFiles, nil), Help: "rules `files`, or directories of them; reloaded on SIGHUP and when they change", Sample: "[rules.yaml]"},
		{Name: "listen", Value: setting.Text(&o.Listen, ":8080", nil), Help: "`address` for clients: HTTP/1.1 and HTTP/2 without TLS; empty: none", Single: true},
		{Name: "tls-listen", Value: setting.Text(&o.TLSListen, "", nil), Help: "`address` for clients: HTTP/1.1 and HTTP/2 over TLS", Single: true, Sample: "#:8443", Needs: []string{"tls-certs|tls-cert"}},
		{Name: "http3-listen", Value: setting.Text(&o.HTTP3Listen, "", nil), Help: "UDP `address` for clients: HTTP/3, announced by responses on --tls-listen", Single: true, Sample: "#:8443", Needs: []string{"tls-listen"}},
		{Name: "tls-certs", Value: setting.List(&o.TLSCerts, nil), Help: "certificates, chosen by the client's server name: PEM files `CERT:KEY`, or directories of pairs; reloaded like the rules; see docs/tls.md", Single: true, Sample: "#[/etc/edge/certs, a.pem:a.key]", Needs: []string{"tls-listen"}},
		{Name: "tls-cert", Value: setting.Text(&o.TLSCert, "", nil), Help: "PEM `file` with the chain of the first certificate; reloaded like the rules", Single: true, Sample: "#cert.pem", Needs: []string{"tls-key", "tls-listen"}},
		{Name: "tls-key", Value: setting.Text(&o.TLSKey, "", nil), Help: "PEM `file` with the private key of --tls-cert", Single: true, Sample: "#key.pem", Needs: []string{"tls-cert"}},
		{Name: "tls-redirect", Value: setting.Parsed("port", &o.TLSRedirect, "0", setting.Whole(0, 65535)), Help: "`port` of https:// URLs to which requests without TLS are redirected, usually 443; 0: no redirects", Single: true, Sample: "#443", Needs: []string{"tls-listen|trusted-proxy"}},
		{Name: "metrics-listen", Value: setting.Text(&o.MetricsListen, "127.0.0.1:9180", nil), Help: "`address` for monitoring: /metrics, /livez, /readyz; empty: none", Single: true},
		{Name: "admin-listen", Value: setting.Text(&o.AdminListen, "127.0.0.1:9190", nil), Help: "`address` for operators and their commands; empty: none; see docs/api.md", Single: true},
		{Name: "admin-tokens", Value: setting.Text(&o.AdminTokens, "", nil), Help: "`file` with operators' tokens, one NAME TOKEN per line; reloaded like the rules; empty: a token generated for this machine", Sample: "#admin.tokens"},
		{Name: "admin-pprof", Value: setting.Bool(&o.AdminPProf, false), Help: "serve profiles of the process at /debug/pprof/ on the admin listener"},

		{Group: "the origin", Name: "origin", Value: setting.Text(&o.Origin, "", checkOrigin), Help: "`URL` of the origin: http://HOST:PORT, https://HOST or h2c://HOST:PORT", Sample: "http://127.0.0.1:3000"},
		{Name: "host-origin", Value: setting.Map(&o.HostOrigins, "HOST=URL", parseHostOrigin), Help: "origins of individual hosts, `HOST=URL`; may be repeated", Sample: `#{app.example.com: "http://127.0.0.1:3001"}`},
		{Name: "acme-origin", Value: setting.Text(&o.ACMEOrigin, "", checkOrigin), Help: "`URL` of the origin for /.well-known/acme-challenge/, such as an ACME client; see docs/tls.md", Sample: "#http://10.0.0.9:8402"},
		{Name: "origin-timeout", Value: setting.Duration(&o.OriginOptions.Timeout, time.Minute, 1, maxTime), Help: "how long to wait for an origin's response to begin"},
		{Name: "origin-connect-timeout", Value: setting.Duration(&o.OriginOptions.ConnectTimeout, 5*time.Second, 1, maxTime), Help: "maximum time to connect to an origin"},

		{Group: "other proxies that ask", Name: "check-listen", Value: setting.Text(&o.CheckListen, "", nil), Help: "`address` where other proxies ask whether requests may pass, HOST:PORT or unix:PATH; see docs/check.md", Single: true, Sample: "#unix:/run/edge/check.sock"},
		{Name: "check-deny-status", Value: setting.Parsed("status", &o.CheckDenyStatus, "0", parseDenyStatus), Help: "`status` of refusals on --check-listen, such as 403; 0: the rule's status, but 403 for nginx", Single: true, Sample: "0", Needs: []string{"check-listen"}},
		{Name: "spop-listen", Value: setting.Text(&o.SPOPListen, "", nil), Help: "`address` where HAProxy asks in its own protocol (SPOP), HOST:PORT or unix:PATH", Single: true, Sample: "#unix:/run/edge/spop.sock"},
		{Name: "socket-group", Value: setting.Parsed("text", &o.SocketGroup, "", parseGroup), Help: "`group` whose processes may connect to Unix sockets, in addition to the node's user; by default the node's own group", Single: true, Sample: "#www-data"},

		{Group: "the PoP", Name: "secret-file", Value: setting.Text(&o.SecretFile, "", nil), Help: "`file` with the secret, the same on every node: (umask 077; head -c 24 /dev/urandom | base64 > FILE)", Sample: "secret"},
		{Name: "secret", Value: setting.Text(&o.Secret, "", checkSecret), Help: "the secret itself, at least 16 bytes; prefer --secret-file or EDGE_SECRET", Sample: "#sixteen bytes or more", Secret: true, Contradicts: "secret-file"},
		{Name: "shard", Value: setting.List(&o.Shards, checkShard), Help: "`addresses` of memcached or (redis://HOST:PORT) Redis servers, the same on every node; if empty, the node embeds a shard", Sample: "[10.0.0.1:11211, 10.0.0.2:11211, 10.0.0.3:11211]", Needs: []string{"secret-file|secret"}},
		{Name: "shard-listen", Value: setting.Text(&o.ShardListen, "", nil), Help: "`address` of a shard in this node that all nodes use, instead of --shard; needs gossip", Single: true, Sample: "#10.0.0.1:11211", Needs: []string{"gossip-listen", "secret-file|secret"}, Contradicts: "shard"},
		{Name: "gossip-listen", Value: setting.Text(&g.Listen, "", checkGossipListen), Help: "`address` for the other nodes, IP:PORT, UDP and TCP; empty: mitigations are learned from the shards", Single: true, Sample: ":7946", Needs: []string{"secret-file|secret"}},
		{Name: "gossip-advertise", Value: setting.Text(&g.Advertise, "", checkAdvertise), Help: "`address` at which other nodes reach --gossip-listen, if it differs", Single: true, Sample: "#10.0.0.1:7946", Needs: []string{"gossip-listen"}},
		{Name: "gossip-key-file", Value: setting.Text(&g.KeyFile, "", nil), Help: "`file` with the gossip keys in base64, one per line; the first one encrypts; reloaded like the rules", Single: true, Sample: "gossip.keys", Needs: []string{"gossip-listen"}},
		{Name: "gossip-key", Value: setting.ListOf(&g.Keys, parseGossipKey), Help: "the gossip `keys` themselves, in base64; prefer --gossip-key-file or EDGE_GOSSIP_KEY", Single: true, Secret: true, Sample: "#[MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=]", Needs: []string{"gossip-listen"}, Contradicts: "gossip-key-file"},
		{Name: "join", Value: setting.List(&g.Join, checkServer), Help: "`addresses` of nodes to join at startup; may include the node's own", Single: true, Sample: "[10.0.0.1:7946, 10.0.0.2:7946, 10.0.0.3:7946]", Needs: []string{"gossip-listen"}},
		{Name: "max-nodes", Value: setting.Int(&o.MaxNodes, counter.MinNodes, 1, MaxNodes, "nodes"), Help: "maximum number of nodes at the same time; the counters of limits with sub_windows need room for all of them", Single: true},

		{Group: "clients", Name: "trusted-proxy", Value: setting.ListOf(&o.TrustedProxies, parseProxy), Help: "`networks` of proxies whose X-Forwarded-For is trusted", Sample: "#[10.0.0.0/8]"},
		{Name: "proxy-protocol", Value: setting.Bool(&o.ProxyProtocol, false), Help: "read the PROXY protocol, version 1 or 2, from trusted proxies", Single: true, Needs: []string{"trusted-proxy"}},
		{Name: "ipv4-prefix", Value: setting.Int(&o.Client.IPv4, 32, 1, 32, "bits"), Help: "leading `bits` of an IPv4 address that identify a client, the same on every node"},
		{Name: "ipv6-prefix", Value: setting.Int(&o.Client.IPv6, 64, 1, 128, "bits"), Help: "leading `bits` of an IPv6 address that identify a client, the same on every node"},
		{Name: "nat64-prefix", Value: setting.ListOf(o.Client.NAT64, rule.ParseNAT64), Help: "NAT64 `prefixes` besides 64:ff9b::/96; an address with such a prefix is treated as the IPv4 address in it; the same on every node", Sample: "#[2001:db8:64::/96]"},
		{Name: "strict-hosts", Value: setting.Bool(&o.StrictHosts, false), Help: "refuse hosts that neither a rule nor --host-origin names, with 421; otherwise --origin serves them"},
		{Name: "strict-methods", Value: setting.Bool(&o.StrictMethods, false), Help: "refuse methods that differ from a registered one only in case (post), with 501"},
		{Name: "http2-streams", Value: setting.Int(&o.MaxStreams, 128, 1, 1<<16, "requests"), Help: "maximum number of concurrent `requests` per connection of HTTP/2 or HTTP/3"},
		{Name: "http2-overhead", Value: setting.Int(&o.MaxOverhead, 1000, 10, 1<<20, "frames"), Help: "maximum burst of `frames` per connection of HTTP/2 or HTTP/3 beyond what requests need (pings, settings, resets)"},
		{Name: "connections", Value: setting.Int(&o.Connections, 1<<16, 0, 1<<24, "connections"), Help: "maximum number of `connections` from all clients together, within the open-file limit; 0: only that limit"},
		{Name: "client-connections", Value: setting.Int(&o.ClientConnections, 1<<15, 0, 1<<24, "connections"), Help: "maximum number of `connections` per client, except trusted proxies; 0: no maximum"},
		{Name: "read-header-timeout", Value: setting.Duration(&o.ReadHeaderTimeout, 10*time.Second, 1, maxTime), Help: "maximum time to read a request's header"},
		{Name: "max-header-bytes", Value: setting.Int(&o.MaxHeaderBytes, 64<<10, 1, 16<<20, "bytes"), Help: "maximum size of a request's header, in `bytes`"},
		{Name: "header-memory", Value: setting.Int(&o.HeaderMemory, 64<<20, 0, 1<<40, "bytes"), Help: "maximum memory of incomplete headers, handshakes and frames from all clients together, in `bytes`; 0: no maximum"},
		{Name: "client-header-memory", Value: setting.Int(&o.ClientHeaderMemory, 4<<20, 0, 1<<40, "bytes"), Help: "the same for each client, except trusted proxies; 0: no maximum"},
		{Name: "body-timeout", Value: setting.Duration(&o.BodyTimeout, time.Minute, 0, maxTime), Help: "maximum pause within a request's body, or while the client does not read the response; 0: no limit"},
		{Name: "body-rate", Value: setting.Int(&o.BodyRate, 240, 0, 1<<30, "bytes"), Help: "minimum rate of a request's body, in `bytes` per second; a client may fall behind by --body-timeout; 0: no minimum"},
		{Name: "idle-timeout", Value: setting.Duration(&o.IdleTimeout, 2*time.Minute, 1, maxTime), Help: "time after which an idle connection is closed"},
		{Name: "drain-timeout", Value: setting.Duration(&o.DrainTimeout, 30*time.Second, 1, maxTime), Help: "maximum time for requests to end after SIGTERM"},

		{Group: "counting", Name: "flush-interval", Value: setting.Duration(&o.FlushInterval, 2*time.Millisecond, 1, maxTime), Help: "how long to collect counts of a key before sending them"},
		{Name: "shard-timeout", Value: setting.Duration(&o.ShardOptions.Timeout, 100*time.Millisecond, 1, maxTime), Help: "maximum time for a round trip to a shard; no request waits for one"},
		{Name: "queue-size", Value: setting.Int(&o.QueueSize, 16384, 1, maxKeys, "keys"), Help: "maximum number of `keys` waiting to be counted"},
		{Name: "tracked-keys", Value: setting.Int(&o.TrackedKeys, 262144, 1, maxKeys, "keys"), Help: "maximum number of `keys` whose counts are kept in memory: 0.3 to 0.4 KB each, and 0.25 KB more for each further limit of the rule"},
		{Name: "mitigation-records", Value: setting.Int(&o.MitigationRecords, 131072, 1, maxKeys, "records"), Help: "maximum number of mitigation `records` in memory"},

		{Group: "responses and logs", Name: "ratelimit-headers", Value: setting.Parsed("text", &o.Headers, proxy.Draft10.String(), proxy.ParseHeaderStyle).Choices("draft10", "x-ratelimit", "both", "none"), Help: "headers that tell clients their quota: draft10 (RateLimit, RateLimit-Policy), x-ratelimit, both or none"},
		{Name: "node-header", Value: setting.Text(&o.NodeHeader, "", checkHeaderName), Help: "`name` of a response header that identifies the node that answered", Sample: "#X-Edge-Node"},
		{Name: "access-log", Value: setting.Bool(&o.AccessLog, false), Help: "log every request"},
		{Name: "log-clients", Value: setting.Bool(&o.LogClients, false), Help: "include the client and its request in log lines about mitigations"},
		{Name: "decision-log", Value: setting.Text(&o.DecisionLog, "", nil), Help: "`file` for decisions about a sample of the keys, which edge replay reads; see docs/decisions.md", Sample: "#/var/log/edge/decisions"},
		{Name: "decision-log-share", Value: setting.Parsed("share", &o.DecisionLogShare, "0.01", setting.Number(1e-9, 1)), Help: "`share` of the keys in the sample, up to 1, the same on every node"},
		{Name: "decision-log-size", Value: setting.Int(&o.DecisionLogSize, 256<<20, 1<<20, 1<<40, "bytes"), Help: "maximum size of the file and its three predecessors together, in `bytes`"},
	}
}

// parseGroup returns the ID of a group, given by its name or ID.
func parseGroup(text string) (int, error) {
	if group, err := user.LookupGroup(text); err == nil {
		text = group.Gid
	}
	id, err := strconv.Atoi(text)
	if err != nil {
		err = errors.New("must be a group of this machine")
	}
	return id, err
}

func checkName(name string) error {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return errors.New("must not contain control characters")
	}
	return nil
}

// isPort reports whether text is a port number.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// checkServer returns an error if addr cannot be the address of another process.
func checkServer(addr string) error {
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "0" || !isPort(port) {
		return errors.New("must be HOST:PORT")
	}
	return nil
}

// checkShard returns an error if addr cannot be the address of a shard.
func checkShard(addr string) error {
	_, err := shards.ParseAddress(addr)
	return err
}

// gossipAddr returns the address to listen on for other nodes.
func gossipAddr(text string) (netip.AddrPort, error) {
	if port, all := strings.CutPrefix(text, ":"); all {
		text = netip.IPv4Unspecified().String() + ":" + port
	}
	return netip.ParseAddrPort(text)
}

func checkGossipListen(addr string) error {
	if _, err := gossipAddr(addr); addr != "" && err != nil {
		return errors.New("must be IP:PORT, or :PORT for all addresses of the machine")
	}
	return nil
}

func checkAdvertise(addr string) error {
	if _, err := netip.ParseAddrPort(addr); addr != "" && err != nil {
		return errors.New("must be IP:PORT")
	}
	return nil
}

func parseGossipKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !gossip.IsKey(key) {
		return nil, errors.New("must be base64 of 16, 24 or 32 bytes; make one with: head -c 32 /dev/urandom | base64")
	}
	return key, nil
}

// parseProxy parses the network or the address of a trusted proxy.
func parseProxy(text string) (netip.Prefix, error) {
	address, _, _ := strings.Cut(text, "%") // addresses are compared without zones
	return rule.ParsePrefix(address)
}

func checkOrigin(text string) error {
	if _, err := proxy.NewOrigin(text, proxy.OriginOptions{}); err != nil && text != "" {
		hint := ""
		if _, err := proxy.NewOrigin("http://"+text, proxy.OriginOptions{}); err == nil {
			hint = "did you mean http://" + text + "?"
		}
		return &setting.Error{Problem: prose.Message(err), Hint: hint} // the problem already has the value
	}
	return nil
}

func parseDenyStatus(text string) (int, error) {
	status, err := strconv.Atoi(text)
	if err != nil || status != 0 && (status < 400 || status > 599) {
		return 0, errors.New("must be 0 or a status from 400 to 599")
	}
	return status, nil
}

func parseHostOrigin(host, origin string) (canonical string, err error) {
	canonical = proxy.CanonicalHost(host)
	if canonical == "" || strings.ContainsAny(host, "*/@ ") || origin == "" {
		return "", errors.New("must be HOST=URL, as in app.example.com=http://127.0.0.1:3000")
	}
	return canonical, checkOrigin(origin)
}

// checkHeaderName returns an error if name cannot be the name of a header (RFC 9110, section 5.6.2).
func checkHeaderName(name string) error {
	if name != "" && !httpguts.ValidHeaderFieldName(name) {
		return errors.New("must be a header name: only letters, digits and hyphens")
	}
	return nil
}
