package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// rulesMode enforces rules, and may compare them with others.
type rulesMode struct {
	flags  *pflag.FlagSet
	rules  []string
	base   []string
	spread string
	losses []string
	most   uint64
	pop    analysis.PoPOptions
	shared *sharedFlags

	set, before *rule.Set
}

// sharedFlags are the flags of all modes that use whole entries.
type sharedFlags struct {
	ipv4, ipv6 int
	top        int
}

func (f *sharedFlags) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.IntVar(&f.ipv4, "ipv4-prefix", 32, "leading bits of an IPv4 address that identify a client")
	flags.IntVar(&f.ipv6, "ipv6-prefix", 64, "leading bits of an IPv6 address that identify a client")
	flags.IntVar(&f.top, "top", 10, "number of clients and paths to list")
	return flags
}

func (f *sharedFlags) check() error {
	errs := []error{within("ipv4-prefix", int64(f.ipv4), 32), within("ipv6-prefix", int64(f.ipv6), 128)}
	if f.top < 1 {
		errs = append(errs, fail("top", "", "%d is less than 1", f.top))
	}
	return errors.Join(errs...)
}

func (f *sharedFlags) client() rule.ClientPrefix {
	return rule.ClientPrefix{IPv4: f.ipv4, IPv6: f.ipv6}
}

func newRules(shared *sharedFlags, sharedSet *pflag.FlagSet) replayMode {
	m := &rulesMode{flags: pflag.NewFlagSet("", pflag.ContinueOnError), shared: shared}
	m.flags.StringSliceVar(&m.rules, "rules", nil, "`files` or directories of rules: report what they would have refused")
	m.flags.StringSliceVar(&m.base, "base", nil, "`files` of other rules to compare with: report which clients would be newly refused or newly allowed")
	m.flags.Uint64Var(&m.most, "max-newly-refused", 0, "with --base: write Markdown, and exit with 1 if more requests are newly refused")
	m.flags.IntVar(&m.pop.Nodes, "nodes", 1, "number of nodes of the PoP that enforces the rules")
	m.flags.IntVar(&m.pop.Shards, "shards", 1, "number of counter shards of the PoP")
	m.flags.DurationVar(&m.pop.Lag, "lag", 0, "time until counts and mitigations take effect")
	m.flags.StringVar(&m.spread, "spread", "connection", "how requests reach nodes: by connection or by request")
	m.flags.DurationVar(&m.pop.Skew, "skew", 0, "maximum difference between the nodes' clocks")
	m.flags.StringSliceVar(&m.losses, "lose-shard", nil, "`time` after the log's start when a shard fails: 10m, 10m+30s for half a minute, 2@10m the second shard")
	m.flags.AddFlagSet(sharedSet)
	return replayMode{name: "rules", flags: m.flags, selected: func() bool { return len(m.rules) > 0 }, needs: m.needs, check: m.check, run: m.run}
}

func (m *rulesMode) needs() accesslog.Fields {
	if m.set.ReadsFields() || m.before != nil && m.before.ReadsFields() {
		return accesslog.All
	}
	return accesslog.All &^ accesslog.Header
}

func (m *rulesMode) check() (err error) {
	errs := []error{m.shared.check()}
	if m.flags.Changed("max-newly-refused") && len(m.base) == 0 {
		errs = append(errs, fail("max-newly-refused", "--base old.yaml", "needs --base"))
	}
	if m.pop.Skew > 0 && m.pop.Nodes == 1 {
		errs = append(errs, fail("skew", "--nodes 3", "needs at least 2 nodes"))
	}
	if m.pop.Spread, err = analysis.ParseSpread(m.spread); err != nil {
		errs = append(errs, fail("spread", "", "%s", message(err)))
	}
	m.pop.Losses = nil
	for _, text := range m.losses {
		loss, err := analysis.ParseLoss(text)
		if err != nil {
			errs = append(errs, fail("lose-shard", "", "%s", message(err)))
		}
		m.pop.Losses = append(m.pop.Losses, loss)
	}
	m.pop.Client = m.shared.client()
	if m.set, err = rule.Load(m.rules...); err != nil {
		errs = append(errs, err)
	}
	if len(m.base) > 0 {
		if m.before, err = rule.Load(m.base...); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, err := analysis.NewSimulation(m.pop, m.set); err != nil {
		return usageError{err, "see 'edge replay --help'"}
	}
	return nil
}

func (m *rulesMode) run(ctx context.Context, in *input, to destination) error {
	defer m.collectGarbage()()
	if m.before != nil {
		return m.compare(ctx, in, to)
	}
	enforcer, err := analysis.NewEnforcer(analysis.EnforcementOptions{Rules: m.set, PoP: m.pop, ReportOptions: analysis.ReportOptions{Top: m.shared.top, Name: to.name}, Detail: to.page != nil})
	if err != nil {
		return err
	}
	err = m.play(ctx, in, enforcer.Add)
	report := enforcer.Report() // ends its goroutines
	if err != nil {
		return err
	}
	return to.write(in, report.Document())
}

// collectGarbage sets how often garbage is collected until undo is called, unless GOGC is set. Tables of
// counts have no pointers, so collecting often saves memory at hardly any cost. A simulated PoP is full of
// pointers.
func (m *rulesMode) collectGarbage() (undo func()) {
	percent := 40
	if m.pop.Nodes > 1 || m.pop.Lag > 0 {
		percent = 100
	}
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(percent)
	return func() { debug.SetGCPercent(before) }
}

// play passes all requests of the log to add, and then reports which parts of the question the log
// cannot answer.
func (m *rulesMode) play(ctx context.Context, in *input, add func(*accesslog.Entry)) error {
	rules := m.set.Rules()
	if m.before != nil {
		rules = slices.Concat(rules, m.before.Rules())
	}
	covered := newCoverage(rules)
	err := in.entries(ctx, func(e *accesslog.Entry) error {
		covered.add(e)
		add(e)
		return nil
	})
	if err != nil {
		return err
	}
	if err := covered.check(rules); err != nil {
		report(in.stderr, err)
	}
	stats := in.log.Stats()
	length := time.Duration(stats.Last-stats.First) * time.Microsecond
	for i, l := range m.pop.Losses {
		if l.At > length {
			report(in.stderr, fmt.Errorf("--lose-shard %s changes nothing: the log ends %v after its first request", m.losses[i], length))
		}
	}
	return nil
}

// compare reports what the rules would do differently from the previous ones.
func (m *rulesMode) compare(ctx context.Context, in *input, to destination) error {
	o := analysis.ComparisonOptions{Rules: m.set, Base: m.before, PoP: m.pop, ReportOptions: analysis.ReportOptions{Top: m.shared.top, Name: to.name}}
	isCheck := m.flags.Changed("max-newly-refused")
	if isCheck {
		o.MaxNewlyRefused = &m.most
	}
	comparer, err := analysis.NewComparer(o)
	if err != nil {
		return err
	}
	err = m.play(ctx, in, comparer.Add)
	report := comparer.Report() // ends its goroutines
	if err != nil {
		return err
	}
	to.markdown = to.markdown || isCheck && !to.asJSON
	return errors.Join(to.write(in, report.Document()), report.Check())
}
