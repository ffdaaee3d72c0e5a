package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/pop/setting"
)

func newReplaySweep() *cobra.Command {
	var r replay
	var m sweepMode
	cmd := &cobra.Command{
		Use:   "sweep LOG…",
		Short: "Recommend a threshold",
		Long: `Try many thresholds and periods in one pass, and recommend the smallest threshold that would
have affected hardly any clients.`,
		Example: `  edge replay sweep access.log
  edge replay sweep --by ip --by ip+path access.log`,
		RunE: func(cmd *cobra.Command, logs []string) error { return r.run(cmd, logs, &m) },
	}
	r.define(cmd, append([]setting.Setting{
		{Name: "thresholds", Value: setting.ListOf(&m.o.Thresholds, parseThreshold), Help: "`numbers` of requests to try (default 5, 10, 20, 50, 100 …)"},
		{Name: "periods", Value: setting.ListOf(&m.o.Periods, parsePeriod), Help: "`periods` to try (default 10s, 1m, 10m, 1h)"},
		{Name: "by", Value: repeatable(setting.ListOf(&m.o.Characteristics, analysis.ParseCharacteristics)), Help: "`characteristics` to count by, joined by +; may be repeated (default ip)"},
		{Name: "max-clients", Value: setting.Parsed("percent", &m.o.MaxClientsPct, "0.1", setting.Number(0.0001, 100)), Help: "`percent`age of clients that a recommended threshold may affect"},
		{Name: "mitigation-timeout", Value: setting.Parsed("time", &m.o.MitigationTimeout, "0", parseDuration), Help: "minimum `time` that a mitigation lasts; 0 throttles"},
	}, clientFlags(&m.o.Client, &m.o.Top)...)...)
	return cmd
}

// sweepMode looks for a threshold.
type sweepMode struct{ o analysis.SweepOptions }

func (m *sweepMode) prepare() (accesslog.Fields, error) {
	_, err := analysis.NewSweep(m.o)
	return m.o.Fields(), asUsage(err)
}

func (m *sweepMode) answer(ctx context.Context, in *input, to *reporter) error {
	m.o.Name = to.name
	sweep, err := analysis.NewSweep(m.o)
	if err != nil {
		return err
	}
	err = in.entries(ctx, sweep.Add)
	report, last := sweep.Report() // ends its goroutines
	if err := cmp.Or(err, last); err != nil {
		return err
	}
	return to.write(in, report.Document())
}

func (m *sweepMode) decided(*decisions.Log) (*decisions.Report, error) {
	return nil, usageError{errors.New("a sweep needs access logs, but these are decision logs"), "edge replay rules shows what other limits would have decided"}
}
