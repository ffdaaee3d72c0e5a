package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

func newLoad() *cobra.Command {
	var traffic trafficFlags
	var sending sendingFlags
	var judge judgeFlags
	var out loadOutput
	general := append(out.settings(), []setting.Setting{
		{Name: "latency", Value: setting.Bool(&out.latency, false), Help: "print the distribution of latencies: percentiles in the format of HdrHistogram"},
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
			if o.Duration == 0 && o.Requests > 0 {
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
	return cmd
}

// A loadOutput configures where and how the report of a run is written.
type loadOutput struct {
	reporter
	latency bool   // print the distribution
	csv     string // file for a line per request, if not empty
}

// runLoad sends the requests and writes the report.
func runLoad(ctx context.Context, o load.Options, judge *judgeFlags, out loadOutput, stdout io.Writer, show progressLine) error {
	// Report mistakes before anything is sent.
	names := slices.DeleteFunc([]string{judge.log, out.csv, out.html}, func(name string) bool { return name == "" })
	slices.Sort(names)
	if len(slices.Compact(names)) < len(names) {
		return usageError{errors.New("two of --log, --csv and --html name the same file"), ""}
	}
	sent, err := createFile(judge.log)
	csv, csvErr := createFile(out.csv)
	if err := errors.Join(err, csvErr, out.open(stdout)); err != nil {
		return err
	}
	o.Progress = show.ofLoad()
	restore := leaveCores(o)
	log, err := load.Run(ctx, o)
	restore()
	show.end()
	if err != nil {
		return err
	}
	if log.Requests() == 0 {
		return errors.New("nothing was sent: no request was due before the run ended")
	}
	report := log.Report()
	if judge.o.Rules != nil {
		if report.Score, err = log.Score(judge.o); err != nil {
			return err
		}
	}
	// Write to standard output last: if its reader has stopped, the process ends here.
	return errors.Join(writeFile(sent, log.Write), writeFile(csv, log.WriteCSV), out.writeReport(report), unanswered(report), judge.verdict(report))
}

// unanswered returns an error if nothing was answered.
func unanswered(r *load.Report) error {
	if len(r.Statuses) > 0 {
		return nil
	}
	return complaint.WithHint(fmt.Errorf("%s did not answer any request", prose.FirstThree(r.Targets)), "write https:// if it speaks TLS; --identity proxy2 if it expects the PROXY protocol")
}

// leaveCores leaves half of the cores to targets on this machine if requests are sent as fast as
// connections carry them; otherwise the generator and the target compete for cores. restore undoes
// this. GOMAXPROCS in the environment takes precedence.
func leaveCores(o load.Options) (restore func()) {
	here := slices.ContainsFunc(o.Targets, func(t load.Target) bool { return t.Addr.Addr().IsLoopback() || t.Addr.Addr().IsUnspecified() })
	if !o.ClosedLoop || !here || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	all := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS((all + 1) / 2)
	return func() { runtime.GOMAXPROCS(all) }
}

func (o *loadOutput) writeReport(r *load.Report) error {
	if err := o.emit("", nil, r.Document()); err != nil || !o.latency || o.asJSON || o.markdown {
		return err
	}
	return r.WriteLatency(o.stdout)
}

// defaultSkew is the nodes' tick of 10 ms, and 5 ms for differences between clocks.
const defaultSkew = 15 * time.Millisecond

// judgeFlags configures which rules responses are checked against and what fails the run.
type judgeFlags struct {
	rules    []string
	o        load.JudgeOptions
	comeBack bool
	failIf   []string
	log      string

	conditions []*load.Condition
}

func (f *judgeFlags) settings() []setting.Setting {
	const rules = "rules"
	return []setting.Setting{
		{Group: "the judge", Name: rules, Value: setting.List(&f.rules, nil), Help: "rules `files` of the PoP, or directories of them", Sample: "rules.yaml"},
		{Name: "lag", Value: setting.Parsed("duration", &f.o.Lag, "500ms", setting.Span(1, unbounded)), Help: "maximum time until all nodes act on a count; longer is a fault", Needs: []string{rules}},
		{Name: "skew", Value: setting.Parsed("duration", &f.o.Skew, defaultSkew.String(), setting.Span(0, unbounded)), Help: "maximum difference between the nodes' clocks and this machine's, plus the nodes' tick of 10 ms", Needs: []string{rules}},
		{Name: "ipv4-prefix", Value: setting.Int(&f.o.Client.IPv4, 32, 1, 32, "bits"), Help: "leading `bits` of an IPv4 address that identify a client, as configured on the nodes", Needs: []string{rules}},
		{Name: "ipv6-prefix", Value: setting.Int(&f.o.Client.IPv6, 64, 1, 128, "bits"), Help: "the same for IPv6 addresses", Needs: []string{rules}},
		{Name: "come-back", Value: setting.Bool(&f.comeBack, true), Help: "let some refused clients wait for their Retry-After, and then retry", Needs: []string{rules}},
		{Name: "fail-if", Value: repeatable(setting.List(&f.failIf, nil)), Help: "exit with status 1 if this `condition` on a number of the JSON report is true: 'latency.p99_ms > 20', 'statuses.500 > 0'"},
		{Name: "log", Value: setting.Text(&f.log, "", nil), Help: "write a log of the requests, for edge replay, to this `file`"},
	}
}

// check reads rules and conditions.
func (f *judgeFlags) check(o *load.Options) error {
	var errs []error
	if len(f.rules) > 0 {
		rules, err := rulefile.Load(f.rules...)
		if err == nil {
			f.use(rules, o)
		}
		errs = append(errs, err)
	}
	for _, text := range f.failIf {
		c, err := load.ParseCondition(text, len(f.rules) > 0)
		if err != nil {
			errs = append(errs, fail("fail-if", "use the field names of --json; those of the score need --rules", "%s", prose.Message(err)))
		}
		f.conditions = append(f.conditions, c)
	}
	return errors.Join(errs...)
}

// use sets up o so that responses are checked against rules.
func (f *judgeFlags) use(rules *rule.Set, o *load.Options) {
	f.o.Rules, o.Return = rules, f.comeBack
	for _, r := range rules.Rules() {
		// The body tells a refusal from a response of the origin, or of a node without a shard.
		if (r.Action.Hides() || r.Response.Status == http.StatusServiceUnavailable) && r.Response.Body != "" {
			o.Bodies = append(o.Bodies, []byte(r.Response.Body))
		}
	}
}

// verdict returns an error for each fault, for each condition that is true, and for rules that could not be judged if
// there are conditions.
func (f *judgeFlags) verdict(r *load.Report) error {
	var errs []error
	if s := r.Score; s != nil {
		if len(f.conditions) > 0 && len(s.NotJudged) > 0 {
			errs = append(errs, fmt.Errorf("--fail-if: cannot judge %s", strings.Join(s.NotJudged, "; ")))
		}
		for _, fault := range s.Faults {
			errs = append(errs, fmt.Errorf("fault %s: %s", fault.Name, fault.Text))
		}
	}
	for _, c := range f.conditions {
		holds, value, err := c.Holds(r)
		if holds {
			err = fmt.Errorf("--fail-if: %s (was %v)", c, value)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
