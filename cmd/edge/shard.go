package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/pop/admin"
)

// shardFlags are the settings of a shard.
type shardFlags struct {
	listen, metricsListen string
	megabytes             int64
	connections           int
	idle                  time.Duration
}

func (o *shardFlags) register(s *pflag.FlagSet) {
	s.StringVar(&o.listen, "listen", "127.0.0.1:11211", "`address` for nodes")
	s.StringVar(&o.metricsListen, "metrics-listen", "", "`address` for operators: /metrics, /livez, /readyz; empty: none")
	s.Int64Var(&o.megabytes, "memory", 64, "MiB of memory for items")
	s.IntVar(&o.connections, "max-connections", 1024, "connections at the same time")
	s.DurationVar(&o.idle, "idle-timeout", 0, "how long a connection may be silent; 0: for ever")
}

// check refuses what a shard cannot do.
func (o *shardFlags) check(s *pflag.FlagSet) error {
	errs := []error{
		within(s, "memory", o.megabytes, 1<<20),
		within(s, "max-connections", int64(o.connections), 1<<20),
		checkListeners(s, []string{"listen", "metrics-listen"}, []string{o.listen, o.metricsListen}),
	}
	if o.listen == "" {
		errs = append(errs, fail(s, "listen", "--listen 127.0.0.1:11211", "a shard needs an address to listen on"))
	}
	if o.idle < 0 {
		errs = append(errs, fail(s, "idle-timeout", "", "%v is negative", o.idle))
	}
	return errors.Join(errs...)
}

func newShard() *cobra.Command {
	var o shardFlags
	cmd := &cobra.Command{
		Use:   "shard",
		Short: "Run the embedded shard alone: a small memcached",
		Long: `Run the embedded shard alone: a server of memcached's text protocol with bounded memory.
It has no authentication: let only the nodes of the PoP reach it.`,
		Example: `  edge shard
  edge shard --memory 256 --max-connections 4096`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd.Flags()); err != nil {
				return err
			}
			return runShard(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().SortFlags = false
	o.register(cmd.Flags())
	return withSettings(cmd)
}

// runShard runs a shard until ctx is done or the process is told to end.
func runShard(ctx context.Context, out io.Writer, o shardFlags) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	server, err := shard.New(shard.Options{MaxBytes: o.megabytes << 20, MaxConns: o.connections, IdleTimeout: o.idle, Registerer: reg})
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	ln, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listening for nodes: %w", err)
	}
	if o.metricsListen == "" {
		fmt.Fprintf(out, "shard listens on %v\n", ln.Addr())
	} else {
		metrics, err := net.Listen("tcp", o.metricsListen)
		if err != nil {
			_ = ln.Close()
			return fmt.Errorf("listening for metrics: %w", err)
		}
		operators := &http.Server{Handler: admin.Handler(reg, func() ([]string, error) { return nil, nil }, nil), ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = operators.Serve(metrics) }() // until the end of the process
		defer operators.Close()
		fmt.Fprintf(out, "shard listens on %v, metrics on http://%v/metrics\n", ln.Addr(), metrics.Addr())
	}
	return server.Serve(ctx, ln)
}
