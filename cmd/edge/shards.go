package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/setting"
)

func newShards() *cobra.Command {
	var o operator
	cmd := listing(&o, "shards", "List the shards of a PoP, or take one out of the ring", `List the shards of a PoP as a running node sees them, or take one out of the ring of
all nodes, so that you can stop it: only its keys move to the other shards, and its
counts stay valid. The other shards store the drain, so the shard stays out until it is
undrained, even if all nodes restart. Nodes without gossip notice within 30 s.`,
		"/api/v1/shards", (*operate.Shards).WriteText)
	cmd.Example = `  edge shards
  edge shards drain 10.0.0.2:11211
  edge shards undrain 10.0.0.2:11211`
	var reason string
	define(cmd.PersistentFlags(), []setting.Setting{{Name: "reason", Value: setting.Text(&reason, "", nil), Help: "with drain and undrain: the reason, for the node's log"}})
	for name, short := range map[string]string{"drain": "Take a shard out of the ring of all nodes", "undrain": "Let a shard own keys again"} {
		cmd.AddCommand(&cobra.Command{
			Use:     name + " HOST:PORT",
			Short:   short,
			Example: "  edge shards " + name + " 10.0.0.2:11211",
			Args:    takes("one of the shards that edge shards lists"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return show(cmd, &o, "POST", "/api/v1/shards/"+name, map[string]string{"shard": args[0], "reason": reason}, func(_ *operate.Shards, w io.Writer) {
					fmt.Fprintf(w, "%sed\n", name)
				})
			},
		})
	}
	return cmd
}
