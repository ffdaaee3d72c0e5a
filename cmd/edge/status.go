package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/operate"
)

// A status is the status of a node and its PoP.
type status struct {
	Well bool `json:"well"`
	operate.Status
	operate.Shards
}

var errUnhealthy = errors.New("the node or its PoP is unhealthy")

func newStatus() *cobra.Command {
	var o operator
	return o.register(&cobra.Command{
		Use:   "status",
		Short: "Report whether a node and its PoP are healthy",
		Long: `Report whether a node, and the PoP as it sees it, are healthy: what /readyz says, the
shards, and how many mitigations are active. The exit status is 0 if all is well, and 1 if the
node is not ready, does not answer, reports a problem, or sees a shard down or out of the ring.
A shard that has not answered the node's last request yet is unknown, which counts as unhealthy.
Active mitigations are not a problem.`,
		Example: `  edge status
  edge status --node 127.0.0.1:9191 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s status
			err := o.ask("GET", "/api/v1/status", nil, &s.Status)
			if err == nil {
				err = o.ask("GET", "/api/v1/shards", nil, &s.Shards)
			}
			bad := func(shard operate.Shard) bool { return shard.StateText() != "up" || !shard.InRing }
			s.Well = s.Ready && len(s.Problems) == 0 && !slices.ContainsFunc(s.Shards.Shards, bad)
			if err == nil {
				err = o.render(cmd, &s, s.writeText)
			}
			if err == nil && !s.Well {
				err = errUnhealthy
			}
			return err
		},
	})
}

// writeText writes s as text.
func (s *status) writeText(w io.Writer) {
	ready := "ready"
	if !s.Ready {
		ready = "not ready"
	}
	fmt.Fprintf(w, "node\t%s, %s\n", s.Node, ready)
	for _, problem := range s.Problems {
		fmt.Fprintf(w, "problem\t%s\n", problem)
	}
	for _, shard := range s.Shards.Shards {
		state := shard.StateText()
		switch {
		case shard.Drained:
			state += ", drained"
		case !shard.InRing:
			state += ", out of the ring"
		}
		fmt.Fprintf(w, "shard\t%s: %s\n", shard.Addr, state)
	}
	for _, c := range s.Certificates {
		fmt.Fprintf(w, "certificate\t%s: serial %s, until %s\n", c.Name, c.Serial, c.NotAfter.Format(time.RFC3339))
	}
	fmt.Fprintf(w, "mitigated\t%s\n", operate.ByRule(s.Mitigations))
	if len(s.Logged) > 0 {
		fmt.Fprintf(w, "dry runs\t%s, not refused\n", operate.ByRule(s.Logged))
	}
	if s.Ineffective > 0 {
		fmt.Fprintf(w, "not acted on\t%d, under the current rules\n", s.Ineffective)
	}
	if s.Lifted > 0 {
		fmt.Fprintf(w, "lifted\t%d\n", s.Lifted)
	}
}
