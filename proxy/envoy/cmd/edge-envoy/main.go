// Command edge-envoy is a node of a PoP that implements Envoy's rate limit service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/version"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/proxy/envoy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		report(os.Stderr, err)
		os.Exit(1)
	}
}

// options is the parsed command line.
type options struct {
	node    pop.Options
	listen  string
	version bool // print the version, and nothing else
}

// nodeSettings are the settings of edge node that edge-envoy accepts.
var nodeSettings = []string{
	"name", "pop", "rules", "metrics-listen", "admin-listen", "admin-tokens", "socket-group", "secret-file", "shard", "gossip-listen", "gossip-advertise", "gossip-key-file", "join", "max-nodes",
	"ipv4-prefix", "ipv6-prefix", "nat64-prefix", "drain-timeout", "tracked-keys", "mitigation-records", "log-clients",
}

// parse parses args and checks the result.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{node: pop.Options{Embedded: true, Version: version.String()}}
	flags := flag.NewFlagSet("edge-envoy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8081", "`address` for Envoy, HOST:PORT or unix:PATH; gRPC without TLS")
	flags.BoolVar(&o.version, "version", false, "print the version")
	given := map[string][]string{}
	rows := slices.DeleteFunc(pop.Settings(&o.node), func(row setting.Setting) bool { return !slices.Contains(nodeSettings, row.Name) })
	for _, row := range rows {
		define, help := flags.Func, row.Help
		if row.Value.Default != "" {
			help += fmt.Sprintf(" (default %s)", row.Value.Default)
			given[row.Name] = []string{row.Value.Default}
		}
		if row.Value.Type == "bool" {
			define = flags.BoolFunc
		}
		define(row.Name, help, func(text string) error {
			given[row.Name] = []string{text}
			if row.Value.Type == "list" {
				given[row.Name] = strings.Split(text, ",")
			}
			return nil
		})
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.version {
		return o, nil
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q: all arguments are flags", flags.Arg(0)))
	}
	for _, row := range rows {
		if texts := given[row.Name]; texts != nil {
			errs = append(errs, row.Set(texts))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return o, o.node.Check()
}

// run serves until ctx is done, and then drains. SIGHUP reloads the rules.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.version {
		_, err := fmt.Println("edge-envoy", version.String())
		return err
	}
	log := lograte.NewBacklog(stderr) // a log that nobody reads must not stop the node
	logger := slog.New(slog.NewTextHandler(log, nil))
	go log.Run(logger)
	defer log.Stop()
	o.node.Logger, o.node.AddMetrics = logger, func(to prometheus.Registerer) { to.MustRegister(log.Dropped) }
	node, err := pop.New(o.node)
	if err != nil {
		return err
	}
	ln, err := pop.ListenAt(o.listen, o.node.SocketGroup)
	if err != nil {
		return err
	}
	if err := node.Start(); err != nil {
		return errors.Join(err, ln.Close())
	}
	server := envoy.NewServer(envoy.New(node, logger))
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }() // until Stop
	logger.Info("node started", "name", node.Name(), "envoy", ln.Addr(), "metrics", node.Addr("metrics"), "rules", len(node.Rules().Rules()), "shards", len(o.node.Shards))
	for waiting := true; waiting; {
		select {
		case <-hangup:
			if err := node.Reload(); err != nil {
				pop.LogReloadError(logger, err)
			}
		case err = <-failed:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	logger.Info("node stopping", "name", node.Name())
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(time.Second, o.node.DrainTimeout))
	defer cancel()
	server.Stop(drain)
	return errors.Join(err, node.Stop(drain))
}

// report prints each error on its own line, followed by its hint.
func report(w io.Writer, err error) {
	for _, err := range prose.SingleErrors(err) {
		text, hint := err.Error(), ""
		if e := new(setting.Error); errors.As(err, &e) {
			text, hint = e.Text(func(name string) string { return "--" + name }), e.Hint
		}
		fmt.Fprintf(w, "edge-envoy: %s\n", text)
		if hint != "" {
			fmt.Fprintf(w, "edge-envoy: hint: %s\n", hint)
		}
	}
}
