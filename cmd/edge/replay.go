package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
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
without #Fields.`,
		Example: `  edge replay access.log
  edge replay --pattern '%h %l %u %t "%r" %>s %b' access.log`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, logs []string) error { return r.run(cmd, logs, summary{r.in.set}) },
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().AddFlagSet(r.in.flags())
	cmd.Flags().AddFlagSet(r.out.flags())
	cmd.AddCommand(newReplayRules(), newReplaySweep(), newReplayAccuracy(), newReplayGenerate())
	return cmd
}

// A replay reads logs and writes a report about them.
type replay struct {
	in  inputFlags
	out outputFlags
}

// A question is what a command asks of logs.
type question interface {
	check() error            // checks the flags before a log is opened
	needs() accesslog.Fields // which fields of entries it uses; 0 if it only uses arrivals
	answer(ctx context.Context, in *input, to destination) error
	decided(log *decisions.Log) (*decisions.Report, error) // the answer from decision logs
}

// addFlags adds own, the flags of a command, and those of all replays.
func (r *replay) addFlags(cmd *cobra.Command, own *pflag.FlagSet) {
	groupFlags(cmd, flagGroup{"Flags", own}, flagGroup{"Flags for the report", r.out.flags()}, flagGroup{"Flags for reading logs", r.in.flags()})
}

// run answers q from the logs.
func (r *replay) run(cmd *cobra.Command, logs []string, q question) error {
	if len(logs) == 0 {
		return usageError{errors.New("no log given"), firstExample(cmd) + "; - is standard input"}
	}
	if err := errors.Join(onlyOnce(logs), q.check()); err != nil {
		return err
	}
	decided, stdin := areDecisionLogs(logs, cmd.InOrStdin())
	if decided {
		return r.replayDecisions(cmd, logs, stdin, q)
	}
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	var to *destination
	return r.in.read(logs, q.needs(), stdin, cmd.ErrOrStderr(), func(in *input) (err error) {
		in.anonymize = r.out.anonymize
		if to == nil {
			to, err = r.out.open(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		return q.answer(ctx, in, *to)
	})
}

// firstExample returns the first example of a command.
func firstExample(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(cmd.Example, "\n")
	return strings.TrimSpace(line)
}
