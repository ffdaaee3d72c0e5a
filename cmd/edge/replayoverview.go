package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/pop/setting"
)

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
