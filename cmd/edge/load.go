package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/pop/setting"
)

func newLoad() *cobra.Command {
	var traffic trafficFlags
	var sending sendingFlags
	var judge judgeFlags
	var out loadOutput
	general := append(out.settings(), []setting.Setting{
		{Name: "latency", Value: setting.Bool(&out.latency, false), Help: "print the distribution of latencies: a histogram, and percentiles in the format of HdrHistogram"},
		{Name: "csv", Value: setting.Text(&out.csv, "", nil), Help: "write a line for each request to this `file`, as CSV"},
		progressSetting(&traffic.in.progress),
	}...)
	cmd := &cobra.Command{
		Use:   "load [flags] TARGET…",
		Short: "Send traffic from many clients to a PoP, and check its responses",
		Long: `Send traffic to a PoP, or to any HTTP server. If there are several targets, they are
the nodes of a PoP, and each connection goes to one of them. -c, -n, -H and -m are as in hey; -d is
the duration, as in wrk (hey's -d is --body).

Without --rate, --mix or --replay, requests are sent as fast as responses arrive. If a target
is on this machine, load leaves half of the cores to it, unless GOMAXPROCS is set. With
--rate, --mix or --replay, requests are sent when they are due, however slow the responses are,
and latencies are measured from when they were due: a slow response does not hide the delay of
the requests behind it. The report shows whether the rate was reached.

Given the rules of the PoP, a judge computes the correct response to each request. It keeps the
exact log of each client, and reports how many requests of innocent clients were refused, how
much of an attack passed, how soon all nodes refused it, whether Retry-After was correct, and how
much of this the estimate and the lag explain. Anything that they do not explain is a fault, and
the exit status is 1.

Clients are distinguished by X-Forwarded-For, unless --identity is set. Nodes trust it
if --trusted-proxy names this machine; otherwise they see all clients as one. A PoP remembers
clients, so their addresses differ from run to run, unless --seed or --networks selects them.

If no target accepts a connection within 3s, nothing is sent. If no request is answered within
--timeout, the run ends. In both cases the exit status is 1. Ctrl-C ends a run early; the
report is still printed.`,
		Example: `  edge load -c 16 -n 1000 http://127.0.0.1:8080
  edge load -d 2s -m POST -H 'Content-Type: application/json' --body '{"name":"x"}' http://127.0.0.1:8080/items
  edge load --rate 2000/s -d 2s --latency http://127.0.0.1:8080
  edge load --rate 10/s,500/s@1s,10/s@2s -d 3s --clients 1000 --csv requests.csv http://127.0.0.1:8080
  edge load --replay access.log --speed 100 -d 2s http://127.0.0.1:8080
  edge load --mix web -d 10s --json http://127.0.0.1:8080 | jq .latency.p99_ms

  # A PoP, and every kind of traffic that its rules distinguish:
  edge load --mix web --print-rules > web.yaml
  edge pop --rules web.yaml --trusted-proxy 127.0.0.1 &
  edge load --mix web -d 10s --rules web.yaml --fail-if 'latency.p99_ms > 20' http://127.0.0.1:8080`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, targets []string) error {
			if traffic.printRules {
				return traffic.writeRules(cmd.OutOrStdout())
			}
			if len(targets) == 0 {
				return usageError{errors.New("no target given"), "edge load http://127.0.0.1:8080"}
			}
			o := sending.options()
			if err := judge.check(&o); err != nil {
				return err
			}
			length := o.Duration > 0
			end, err := traffic.apply(cmd, &o)
			if err != nil {
				return err
			}
			if o.Duration == 0 && cmd.Flags().Changed("requests") {
				o.Duration = unbounded
			}
			if err := sending.reach(cmd.Context(), targets, &o); err != nil {
				return errors.Join(err, end())
			}
			if plan := traffic.plan(&o, length, time.Now()); plan != "" && traffic.in.progress {
				fmt.Fprintf(cmd.ErrOrStderr(), "edge: %s\n", plan)
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			show := newProgressLine(traffic.in.progress, cmd.ErrOrStderr())
			return errors.Join(runLoad(ctx, o, &judge, out, cmd.OutOrStdout(), show), end())
		},
	}
	traffic.flags = cmd.Flags()
	define(cmd.Flags(), slices.Concat(
		traffic.settings(), traffic.in.settings("replay"), sending.settings(), judge.settings(), general))
	cmd.SetFlagErrorFunc(loadFlagError)
	return cmd
}
