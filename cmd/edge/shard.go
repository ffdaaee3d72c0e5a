package main

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
)

// newShard returns the command shard, which calls run with its address and options.
func newShard(run func(ctx context.Context, out io.Writer, listen string, o shard.Options) error) *cobra.Command {
	var listen string
	var o shard.Options
	cmd := &cobra.Command{
		Use:   "shard",
		Short: "Run the embedded shard alone: a small memcached",
		Long: `Run the embedded shard alone: a server for memcached's text protocol with bounded memory.
It has no authentication: let only the nodes of the PoP reach it.`,
		Example: `  edge shard
  edge shard --memory 256 --max-connections 4096`,
	}
	rows := []setting.Setting{
		{Name: "listen", Help: "`address` for nodes", Value: setting.Text(&listen, "127.0.0.1:11211", nil)},
		{Name: "memory", Help: "memory for items, in `MiB`", Value: setting.Parsed("MiB", &o.MaxBytes, "64", func(text string) (int64, error) {
			n, err := setting.Whole[int64](1, 1<<20)(text)
			return n << 20, err
		})},
		{Name: "max-connections", Help: "maximum number of concurrent connections", Value: setting.Int(&o.MaxConns, 1024, 1, 1<<20, "connections")},
	}
	check := func() error {
		if listen == "" {
			return &setting.Error{Setting: "listen", Hint: "--listen 127.0.0.1:11211"}
		}
		return pop.CheckListeners(pop.Listener{Name: "listen", Addr: listen})
	}
	return withSettings(cmd, rows, check, func(cmd *cobra.Command) error { return run(cmd.Context(), cmd.OutOrStdout(), listen, o) })
}

// runShard runs a shard until ctx is done or a signal arrives.
func runShard(ctx context.Context, out io.Writer, listen string, o shard.Options) error {
	server := shard.New(o)
	ctx, stop := untilSignal(ctx)
	defer stop()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening for nodes: %w", err)
	}
	fmt.Fprintf(out, "shard listens on %v\n", ln.Addr())
	return server.Serve(ctx, ln)
}
