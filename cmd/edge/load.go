package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/load"
)

func newLoad() *cobra.Command {
	var traffic trafficFlags
	var sending sendingFlags
	var oracle oracleFlags
	var out loadOutput
	var progress bool
	general := pflag.NewFlagSet("", pflag.ContinueOnError)
	general.BoolVar(&progress, "progress", true, "show progress, if standard error is a terminal")
	general.BoolVar(&out.asJSON, "json", false, "write JSON")
	general.StringVar(&out.html, "html", "", "write a page with plots to this `file` as well")
	groups := []flagGroup{
		{"Flags for what is sent", traffic.flags()},
		{"Flags for how it is sent", sending.flags()},
		{"Flags for what is expected", oracle.flags()},
		{"Other flags", general},
	}
	cmd := &cobra.Command{
		Use:   "load [flags] TARGET…",
		Short: "Send traffic of many clients to a PoP, and say what became of it",
		Long: `Send traffic to a PoP, or to any HTTP server: at a rate that does not depend on how fast
it answers. Several targets are the nodes of a PoP: each connection goes to one of
them. Latencies are counted from when a request was due, so that one answer that is
late does not hide those behind it; where the rate could not be kept, that is said. With
--rate max it leaves half of the cores to a target on this machine, unless GOMAXPROCS is set.

Given the rules of the PoP, an oracle knows what each request should have been answered: it
keeps the exact log of each client, and says how many of the innocent were refused, what
passed of an attack, how fast all nodes refused, whether Retry-After was true, and what of
all this the estimate and the lag explain. What nothing explains is named as a fault.

Clients are told apart by X-Forwarded-For, unless --identity says otherwise. Nodes believe it
if --trusted-proxy has this machine; else all clients are one to them.

Ctrl-C ends it early, with a report of what was done.`,
		Example: `  edge load --rate 2000/s --duration 2s http://127.0.0.1:8080
  edge load --rate max --duration 2s --connections 16 http://127.0.0.1:8080
  edge load --rate 10/s,500/s@1s,10/s@2s --duration 3s --clients 1000 http://127.0.0.1:8080
  edge load --mix web --duration 2s --rules rules.yaml --fail-if 'innocent_refused > 0' http://127.0.0.1:8080
  edge load --replay access.log --speed 100 --duration 2s http://127.0.0.1:8080
  edge load --mix web --duration 2s --json http://127.0.0.1:8080 | jq .latency.p99_ms`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, targets []string) error {
			if len(targets) == 0 {
				return usageError{errors.New("there is no target"), "edge load … http://127.0.0.1:8080"}
			}
			o, err := sending.options(cmd.Context(), targets)
			if err := errors.Join(err, oracle.check(&o)); err != nil {
				return errors.Join(err, traffic.check())
			}
			end, err := traffic.apply(cmd.Context(), &o)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return errors.Join(runLoad(ctx, o, &oracle, out.to(cmd.OutOrStdout()), showLoad(progress, cmd.ErrOrStderr())), end())
		},
	}
	groupFlags(cmd, groups...)
	return cmd
}

// A progressLine is a line of a terminal that shows how far a run is.
type progressLine struct {
	update func(load.Progress) // nil if nothing is shown
	end    func()
}

// showLoad shows progress on w, if that is a terminal.
func showLoad(wanted bool, w io.Writer) progressLine {
	if !wanted || !isTerminal(w) {
		return progressLine{nil, func() {}}
	}
	const clear = "\r\x1b[K"
	var before load.Progress
	return progressLine{
		update: func(p load.Progress) {
			line := fmt.Sprintf("%d sent, %d/s, %d refused, %d failed, %d waiting, p50 %.1f, p99 %.1f ms", p.Requests,
				(p.Requests-before.Requests)*uint64(load.ProgressesPerSecond), p.Refused, p.Failed, p.Waiting, float64(p.P50)/1e3, float64(p.P99)/1e3)
			before = p
			fmt.Fprint(w, clear+line[:min(len(line), widthOf(w))])
		},
		end: func() { fmt.Fprint(w, clear) },
	}
}
