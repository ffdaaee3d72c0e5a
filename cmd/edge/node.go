package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/version"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
)

// newNode returns the command node, which calls run with its options.
func newNode(run func(context.Context, pop.Options) error) *cobra.Command {
	var o pop.Options
	var log logging
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a node of a PoP: a reverse proxy that counts requests and refuses clients",
		Long: `Run a node of a PoP: a reverse proxy in front of an origin. It counts the requests of each
client together with the other nodes, in the same shards, and refuses clients that
exceed a rule. After SIGTERM it sends clients to other nodes for up to five seconds, then
finishes requests and sends its counts; a second SIGTERM ends it immediately. SIGHUP
reloads the rules and the certificates. Under systemd it reports its state, and uses the sockets
named http, https, metrics and admin instead of opening its own: see docs/install.md.`,
		Example: `  edge node --rules rules.yaml --origin http://127.0.0.1:3000
  edge node --config node.yaml
  (umask 077; head -c 24 /dev/urandom | base64 > secret)
  edge node --rules rules.d --origin http://127.0.0.1:3000 --secret-file secret \
      --shard 127.0.0.1:11211,127.0.0.1:11212 --trusted-proxy 10.0.0.0/8
  edge node --rules rules.d --origin http://127.0.0.1:3000 --secret-file secret \
      --shard 127.0.0.1:11211 --gossip-listen 127.0.0.1:7946 --join 127.0.0.1:7947`,
	}
	check := func() error {
		var err error
		if o.Listeners, err = inherited(); err != nil {
			return err
		}
		asked := o.CheckListen != "" || o.SPOPListen != ""
		if o.Listen == "" && o.TLSListen == "" && !asked && o.Listeners["http"] == nil && o.Listeners["https"] == nil {
			err = &setting.Error{Setting: "listen", Hint: "--listen :8080"}
		}
		return errors.Join(o.Check(), err)
	}
	return withSettings(cmd, append(pop.Settings(&o), log.settings()...), check, func(cmd *cobra.Command) error {
		defer log.start(cmd.ErrOrStderr(), &o)()
		return run(cmd.Context(), o)
	})
}

// runNode runs a node until ctx is done or a signal arrives. SIGHUP reloads its files.
func runNode(ctx context.Context, o pop.Options) error {
	// Before reading files: a SIGHUP must not end a node that is about to start.
	hangup := onHangup()
	defer signal.Stop(hangup)
	defer collectGarbage(50)() // requests make little garbage, so collecting often saves memory at hardly any cost
	o.Version = version.String()
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
	for _, of := range []string{"http", "https", "http3", "metrics", "admin", "gossip", "shard", "check", "spop"} {
		if addr := n.Addr(of); addr != nil {
			attrs = append(attrs, of, addr)
		}
	}
	if addr := n.Addr("admin"); addr != nil {
		attrs = append(attrs, "page", "http://"+reachable(addr)+"/")
	}
	o.Logger.Info("node started", append(attrs, "rules", len(n.Rules().Rules()), "shards", len(o.Shards))...)
	if len(o.Shards) == 0 && o.ShardListen == "" {
		o.Logger.Info("no shards configured: this node counts alone")
	}
	tell := func(state string) {
		if err := notify(state); err != nil {
			o.Logger.Warn("cannot notify the service manager", "err", err)
		}
	}
	tell("READY=1")
	waitForEnd(ctx, o.Logger, hangup, n.Reload)
	tell("STOPPING=1")
	o.Logger.Info("node stopping", "name", o.Name)
	return n.Stop(context.WithoutCancel(ctx))
}

// waitForEnd waits until ctx is done, and calls reload at every SIGHUP.
func waitForEnd(ctx context.Context, logger *slog.Logger, hangup <-chan os.Signal, reload func() error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			if err := reload(); err != nil {
				pop.LogReloadError(logger, err)
			}
		}
	}
}

// onHangup returns a channel of SIGHUPs. It gets none if the process ignores them, as after nohup.
func onHangup() chan os.Signal {
	hangup := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangup, syscall.SIGHUP)
	}
	return hangup
}
