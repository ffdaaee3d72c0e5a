package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/pop/setting"
)

func newReplay() *cobra.Command {
	var r replay
	cmd := &cobra.Command{
		Use:   "replay LOG…",
		Short: "Report what limits would have done to the requests in access logs",
		Long: `Read access logs, oldest file first, and summarize them. The commands below report what limits
would have done to the requests in them, and how accurate estimates of the rate are. They
also read the decision logs (decision_log) of all nodes of a PoP: see docs/decisions.md.

If LOG is -, standard input is read. Logs may be compressed with gzip, zstd or bzip2. Their
format is detected from the first lines:

` + formats() + `
Also accepted are patterns in the syntax of nginx's log_format or Apache's LogFormat, JSON and
logfmt with other field names, as in json:time=at,client=ip, and the columns of a W3C log
without #Fields: see docs/logs.md.`,
		Example: `  edge replay access.log
  edge replay --pattern '%h %l %u %t "%r" %>s %b' access.log`,
		Args: func(cmd *cobra.Command, logs []string) error {
			if len(logs) > 0 && prose.Guess(logs[0], []string{"rules", "sweep", "accuracy", "generate"}) != "" {
				if _, err := os.Stat(logs[0]); err != nil {
					return noCommand(cmd, logs)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, logs []string) error {
			return r.run(cmd, logs, summary{cmd.Flags(), r.in.settings()})
		},
	}
	r.define(cmd)
	cmd.AddCommand(newReplayRules(), newReplaySweep(), newReplayAccuracy(), newReplayGenerate())
	return cmd
}

// A replay reads logs and writes a report about them.
type replay struct {
	in  inputFlags
	out reporter
}

// A question is what a command wants to know about logs.
type question interface {
	// prepare checks the flags before a log is opened. It returns the fields of entries that the answer needs, or 0
	// if it needs only arrivals.
	prepare() (accesslog.Fields, error)
	answer(ctx context.Context, in *input, to *reporter) error
	decided(log *decisions.Log) (*decisions.Report, error) // the answer from decision logs
}

// define adds the flags of all replays to cmd, after its own.
func (r *replay) define(cmd *cobra.Command, own ...setting.Setting) {
	define(cmd.Flags(), slices.Concat(own, r.out.settings(), []setting.Setting{
		{Name: "anonymize", Value: setting.Bool(&r.out.anonymize, false), Help: "replace clients' names with pseudonyms"},
		{Name: "anonymize-key", Value: setting.Text(&r.out.key, "", nil), Help: "`key` of the pseudonyms: the same key gives the same pseudonyms (default: random)", Needs: []string{"anonymize"}},
	}, r.in.settings(), []setting.Setting{progressSetting(&r.in.progress)}))
}

// run answers q from the logs.
func (r *replay) run(cmd *cobra.Command, logs []string, q question) error {
	if len(logs) == 0 {
		return usageError{errors.New("no log given"), firstExample(cmd) + "; - is standard input"}
	}
	need, err := q.prepare()
	if err := errors.Join(onlyOnce(logs), err); err != nil {
		return err
	}
	if areDecisionLogs(cmd, logs) {
		return r.replayDecisions(cmd, logs, q)
	}
	// A signal ends the process, even while a named pipe is opened: there is nothing to clean up.
	return r.in.read(cmd, logs, need, func(in *input) (err error) {
		in.log.Anonymize = r.out.anonymize
		if r.out.stdout == nil { // the first pass
			err = r.out.open(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		return q.answer(cmd.Context(), in, &r.out)
	})
}

// A summary answers edge replay without a subcommand. reading holds the settings for reading logs.
type summary struct {
	flags   *pflag.FlagSet
	reading []setting.Setting
}

func (s summary) prepare() (accesslog.Fields, error) { return accesslog.Addr, nil }

func (s summary) answer(ctx context.Context, in *input, to *reporter) error {
	var o analysis.Overview
	if err := in.entries(ctx, o.Add); err != nil {
		return err
	}
	o.Finish(to.name)
	if o.Requests >= tinyLog {
		o.Next = suggested(&o, in.files, s.how())
	}
	return to.write(in, o.Document())
}

func (s summary) decided(log *decisions.Log) (*decisions.Report, error) { return log.Overview() }

// how returns the flags with which the logs are read.
func (s summary) how() (how string) {
	for _, row := range s.reading {
		if v := given(s.flags, row.Name); v.shown != "" && row.Name != "workers" {
			how += fmt.Sprintf(" %s %s", v.shown, shellQuote(strings.Join(v.texts, ",")))
		}
	}
	return how
}

// tinyLog is the number of requests below which a log says nothing about limits.
const tinyLog = 10

// suggested returns commands to run next on the same files, with the flags in how.
func suggested(o *analysis.Overview, files []string, how string) []analysis.Suggestion {
	named := shellQuoteAll(files)
	exceeded, recommended := o.Limits()
	next := []analysis.Suggestion{
		{Command: "edge replay sweep" + how + named, Says: "which limits would affect almost no clients"},
		{Command: fmt.Sprintf("edge replay accuracy --limit %d/1m%s%s", exceeded, how, named), Says: "how often the estimate would decide differently from an exact count"},
	}
	if recommended == 0 {
		return next
	}
	return append(next,
		analysis.Suggestion{Command: fmt.Sprintf("echo 'rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], action: log}]' > rules.yaml", recommended), Says: "a rule to start with, which only logs"},
		analysis.Suggestion{Command: "edge replay rules" + how + " rules.yaml" + named, Says: "which clients it would have refused"},
	)
}
