package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// sweepMode looks for a threshold.
type sweepMode struct {
	flags      *pflag.FlagSet
	selected   bool
	thresholds []string
	periods    []string
	by         []string
	o          analysis.SweepOptions
	timeout    string
	shared     *sharedFlags
}

func newSweep(shared *sharedFlags, sharedSet *pflag.FlagSet) replayMode {
	m := &sweepMode{flags: pflag.NewFlagSet("", pflag.ContinueOnError), shared: shared}
	m.flags.BoolVar(&m.selected, "sweep", false, "try many thresholds and periods, and recommend one")
	m.flags.StringSliceVar(&m.thresholds, "thresholds", nil, "`numbers` of requests to try (default 5, 10, 20, 50, 100 …)")
	m.flags.StringSliceVar(&m.periods, "periods", nil, "periods to try (default 10s, 1m, 10m, 1h)")
	m.flags.StringArrayVar(&m.by, "by", nil, "`characteristics` to count by, joined by +; may be repeated (default ip)")
	m.flags.Float64Var(&m.o.MaxClientsPct, "max-clients", 0.1, "`percent`age of clients that a recommended threshold may affect")
	m.flags.StringVar(&m.timeout, "mitigation-timeout", "0", "minimum `time` that a mitigation lasts; 0 throttles")
	m.flags.AddFlagSet(sharedSet)
	return replayMode{name: "sweep", flags: m.flags, selected: func() bool { return m.selected }, needs: m.needs, check: m.check, run: m.run}
}

func (m *sweepMode) needs() accesslog.Fields {
	needs := accesslog.Addr
	for _, c := range slices.Concat(m.o.Characteristics...) {
		switch c.Kind {
		case rule.IP:
		case rule.Host:
			needs |= accesslog.Host
		case rule.Method:
			needs |= accesslog.Method
		case rule.Path, rule.Query:
			needs |= accesslog.Path
		default:
			needs |= accesslog.Header
		}
	}
	return needs
}

func (m *sweepMode) check() error {
	errs := []error{m.shared.check()}
	m.o.Thresholds, m.o.Periods, m.o.Characteristics = nil, nil, nil
	for _, text := range m.thresholds {
		l, err := parseLimit(text + "/1m")
		if err != nil {
			errs = append(errs, fail("thresholds", "--thresholds 10,20,50", "%v", err))
		}
		m.o.Thresholds = append(m.o.Thresholds, l.Threshold)
	}
	for _, text := range m.periods {
		l, err := parseLimit("1/" + text)
		if err != nil {
			errs = append(errs, fail("periods", "--periods 10s,1m,1h", "%v", err))
		}
		m.o.Periods = append(m.o.Periods, time.Duration(l.Period)*time.Microsecond)
	}
	for _, text := range m.by {
		all, err := analysis.ParseCharacteristics(text)
		if err != nil {
			errs = append(errs, fail("by", "--by ip+path", "%s", message(err)))
		}
		m.o.Characteristics = append(m.o.Characteristics, all)
	}
	if !(m.o.MaxClientsPct > 0 && m.o.MaxClientsPct <= 100) { // NaN is neither
		errs = append(errs, fail("max-clients", "", "%v is not a percentage of clients", m.o.MaxClientsPct))
	}
	var err error
	if m.o.MitigationTimeout, err = rule.ParseDuration(m.timeout); err != nil {
		errs = append(errs, fail("mitigation-timeout", "", "%v", err))
	}
	m.o.Client, m.o.Top = m.shared.client(), m.shared.top
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, err := analysis.NewSweep(m.o); err != nil {
		return usageError{err, "see 'edge replay --help'"}
	}
	return nil
}

func (m *sweepMode) run(ctx context.Context, in *input, to destination) error {
	m.o.Name = to.name
	sweep, err := analysis.NewSweep(m.o)
	if err != nil {
		return err
	}
	err = in.entries(ctx, sweep.Add)
	report := sweep.Report() // ends its goroutines
	if err != nil {
		return err
	}
	return to.write(in, report.Document())
}
