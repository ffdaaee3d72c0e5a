package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/proxy"
	"github.com/edgelimit/edge/pop/rule"
)

// nodeFlags are the settings of a node that a PoP on one machine has as well.
type nodeFlags struct {
	set *pflag.FlagSet // that they are registered with

	secret, secretFile string
	rules              []string
	origin             string
	hostOrigins        []string
	originTimeout      time.Duration
	originConnect      time.Duration
	shards             []string
	shardTimeout       time.Duration
	trusted            []string
	ipv4, ipv6         int
	headers            string
	nodeHeader         string
	flushInterval      time.Duration
	queueSize          int
	trackedKeys        int
	records            int
	readHeaderTimeout  time.Duration
	idleTimeout        time.Duration
	bodyTimeout        time.Duration
	drainTimeout       time.Duration
	maxHeaderBytes     int
	accessLog          bool
	logClients         bool
	logFormat          string
	logLevel           string
}

func (f *nodeFlags) register(s *pflag.FlagSet) {
	f.set = s
	s.StringVar(&f.secret, "secret", "", "secret of the PoP, the same on every node, 16 bytes at least; better given by --secret-file or EDGE_SECRET")
	s.StringVar(&f.secretFile, "secret-file", "", "`file` with the secret")
	listVar(s, &f.rules, "rules", "rules `files`, or directories of them; loaded again on SIGHUP and when they change")
	s.StringVar(&f.origin, "origin", "", "`URL` of the origin: http://HOST:PORT, https://HOST, h2c://HOST:PORT")
	listVar(s, &f.hostOrigins, "host-origin", "`HOST=URL` of the origin of one host; may be repeated")
	s.DurationVar(&f.originTimeout, "origin-timeout", time.Minute, "how long an origin may take to begin its answer")
	s.DurationVar(&f.originConnect, "origin-connect-timeout", 5*time.Second, "how long connecting to an origin may take")
	listVar(s, &f.shards, "shard", "`addresses` of memcached servers, HOST:PORT, spelled alike on every node; without any, a shard inside")
	s.DurationVar(&f.shardTimeout, "shard-timeout", 50*time.Millisecond, "bound of a round trip to a shard; no request waits for one")
	listVar(s, &f.trusted, "trusted-proxy", "`networks` of proxies whose X-Forwarded-For is believed")
	s.IntVar(&f.ipv4, "ipv4-prefix", 32, "leading bits of an IPv4 address that make one client")
	s.IntVar(&f.ipv6, "ipv6-prefix", 64, "leading bits of an IPv6 address that make one client")
	s.StringVar(&f.headers, "ratelimit-headers", "draft10", "what clients are told of their quota: draft10 (RateLimit, RateLimit-Policy), x-ratelimit, both, none")
	s.StringVar(&f.nodeHeader, "node-header", "", "`name` of a response header that tells which node answered")
	s.DurationVar(&f.flushInterval, "flush-interval", 2*time.Millisecond, "how long a count waits for others of its key")
	s.IntVar(&f.queueSize, "queue-size", 16384, "keys that wait to be counted, at most")
	s.IntVar(&f.trackedKeys, "tracked-keys", 262144, "keys whose counts are remembered, at most")
	s.IntVar(&f.records, "mitigation-records", 131072, "mitigation records in memory, at most")
	s.DurationVar(&f.readHeaderTimeout, "read-header-timeout", 10*time.Second, "bound of reading a request's header")
	s.DurationVar(&f.idleTimeout, "idle-timeout", 2*time.Minute, "how long a connection is kept without a request")
	s.DurationVar(&f.bodyTimeout, "body-timeout", time.Minute, "how long a client may pause within a body, or leave an answer unread; 0: for ever")
	s.DurationVar(&f.drainTimeout, "drain-timeout", 30*time.Second, "how long requests may take to end after SIGTERM")
	s.IntVar(&f.maxHeaderBytes, "max-header-bytes", 64<<10, "bound of a request's header")
	s.BoolVar(&f.accessLog, "access-log", false, "log every request")
	s.BoolVar(&f.logClients, "log-clients", false, "let log lines about mitigations name the client and its request")
	s.StringVar(&f.logFormat, "log-format", "text", "text, or json with durations in seconds")
	s.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

// options turns the flags into options of a node.
func (f *nodeFlags) options(stderr io.Writer) (pop.Options, error) {
	o := pop.Options{
		RuleFiles:     f.rules,
		Origin:        f.origin,
		OriginOptions: proxy.OriginOptions{Timeout: f.originTimeout, ConnectTimeout: f.originConnect},
		Shards:        f.shards,
		ShardOptions:  counter.ShardOptions{Timeout: f.shardTimeout},
		Client:        rule.ClientPrefix{IPv4: f.ipv4, IPv6: f.ipv6},
		NodeHeader:    f.nodeHeader,
		FlushInterval: f.flushInterval, QueueSize: f.queueSize, TrackedKeys: f.trackedKeys, MitigationRecords: f.records,
		ReadHeaderTimeout: f.readHeaderTimeout, IdleTimeout: f.idleTimeout,
		BodyTimeout:  cmp.Or(f.bodyTimeout, -1), // to options, 0 is the default
		DrainTimeout: f.drainTimeout, MaxHeaderBytes: f.maxHeaderBytes,
		AccessLog: f.accessLog, LogClients: f.logClients,
	}
	var errs [8]error
	o.Secret, errs[0] = f.readSecret()
	o.Headers, errs[1] = f.headerStyle()
	o.TrustedProxies, errs[2] = f.networks()
	o.HostOrigins, errs[3] = f.originsByHost()
	o.Logger, errs[4] = f.logger(stderr)
	errs[5] = f.checkOrigin()
	errs[6] = f.checkShards()
	errs[7] = f.checkBounds()
	return o, errors.Join(errs[:]...)
}

func newNode() *cobra.Command {
	var f nodeFlags
	var o ownFlags
	var g gossipFlags
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a node of a PoP: a reverse proxy that counts and stops",
		Long: `Run a node of a PoP: a reverse proxy in front of an origin that counts the requests of
each client together with the other nodes, in the same shards, and stops who exceeds
a rule. SIGTERM lets clients go to other nodes, for five seconds at most, requests end
and counts be sent; a second one ends it at once. SIGHUP loads the rules and the
certificate again.`,
		Example: `  edge node --rules rules.yaml --origin http://127.0.0.1:3000
  edge node --config node.yaml
  head -c 24 /dev/urandom | base64 > secret
  edge node --rules rules.d --origin http://127.0.0.1:3000 --secret-file secret \
      --shard 127.0.0.1:11211,127.0.0.1:11212 --trusted-proxy 10.0.0.0/8
  edge node --rules rules.d --origin http://127.0.0.1:3000 --secret-file secret \
      --shard 127.0.0.1:11211 --gossip-listen 127.0.0.1:7946 --join 127.0.0.1:7947`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := f.options(cmd.ErrOrStderr())
			var gossipErr error
			options.Gossip, gossipErr = g.options(&f)
			if err := errors.Join(f.checkNode(), o.check(&f), within(f.set, "max-nodes", int64(g.maxNodes), maxNodes), gossipErr, err); err != nil {
				return err
			}
			options.Name = o.name
			options.Listen, options.TLSListen, options.MetricsListen = o.listen, o.tlsListen, o.metricsListen
			options.TLSCert, options.TLSKey, options.ProxyProtocol = o.tlsCert, o.tlsKey, o.proxyProtocol
			options.ShardListen, options.MaxNodes = g.shardListen, g.maxNodes
			return runNode(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	o.register(flags)
	f.register(flags)
	g.register(flags)
	return withSettings(cmd)
}

// ownFlags are the settings that only a single node has.
type ownFlags struct {
	name, listen, tlsListen, tlsCert, tlsKey, metricsListen string
	proxyProtocol                                           bool
}

func (o *ownFlags) register(s *pflag.FlagSet) {
	hostname, _ := os.Hostname()
	s.StringVar(&o.name, "name", hostname, "name of the node, its own in the PoP")
	s.StringVar(&o.listen, "listen", ":8080", "`address` for clients: HTTP/1.1 and HTTP/2 without TLS; empty: none")
	s.StringVar(&o.tlsListen, "tls-listen", "", "`address` for clients: HTTP/1.1 and HTTP/2 over TLS")
	s.StringVar(&o.tlsCert, "tls-cert", "", "PEM `file` with the certificate chain; loaded again like the rules")
	s.StringVar(&o.tlsKey, "tls-key", "", "PEM `file` with its key")
	s.StringVar(&o.metricsListen, "metrics-listen", "127.0.0.1:9180", "`address` for operators: /metrics, /livez, /readyz; empty: none")
	s.BoolVar(&o.proxyProtocol, "proxy-protocol", false, "believe trusted proxies by the PROXY protocol, version 1 or 2")
}

// runNode runs a node until ctx is done or the process is told to end. SIGHUP reloads its
// files.
func runNode(ctx context.Context, o pop.Options) error {
	// Before the files are read: a SIGHUP must not end a node that is about to start.
	hangup := onHangup()
	defer signal.Stop(hangup)
	n, err := pop.New(o)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if err := n.Start(); err != nil {
		return err
	}
	attrs := []any{"name", o.Name}
	for _, of := range []string{"http", "https", "metrics", "gossip", "shard"} {
		if addr := n.Addr(of); addr != nil {
			attrs = append(attrs, of, addr)
		}
	}
	o.Logger.Info("node runs", append(attrs, "rules", len(n.Rules().Rules()), "shards", len(o.Shards))...)
	if len(o.Shards) == 0 && o.ShardListen == "" {
		o.Logger.Info("no shards are given, so that this node counts alone")
	}
	waitForEnd(ctx, o, hangup, n.Reload)
	o.Logger.Info("node stops", "name", o.Name)
	return n.Stop(context.WithoutCancel(ctx))
}

// waitForEnd waits for ctx, calling reload at every SIGHUP. Meanwhile it says which
// shards do not answer.
func waitForEnd(ctx context.Context, o pop.Options, hangup <-chan os.Signal, reload func() error) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, addr := range o.Shards {
		asking.Go(func() { askShard(ctx, o.Logger, addr) })
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			if err := reload(); err != nil {
				pop.LogReloadError(o.Logger, err)
			}
		}
	}
}

// onHangup returns a channel of SIGHUPs.
func onHangup() chan os.Signal {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	return hangup
}

// askShard warns if no memcached answers at addr. A node runs without, so that nothing
// else would tell of an address that is mistyped.
func askShard(ctx context.Context, logger *slog.Logger, addr string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := asked(ctx, addr); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		logger.Warn("shard does not answer; until it does, each node counts its keys alone", "shard", addr, "err", err)
	}
}

// asked asks the memcached at addr for its version.
func asked(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(conn, "version\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReaderSize(conn, 256).ReadSlice('\n')
	if err == nil && !bytes.HasPrefix(line, []byte("VERSION ")) {
		return fmt.Errorf("no memcached: it answers %q", line)
	}
	return err
}
