package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

func newReplayRules() *cobra.Command {
	var r replay
	var m rulesMode
	cmd := &cobra.Command{
		Use:   "rules RULES LOG…",
		Short: "Report what rules would have refused",
		Long: `Report what rules would have refused: which clients and paths, from when, for how long, and
where an exact count would have decided differently. RULES is a file or directory of rules, or
several, separated by commas.

The nodes' own code enforces the rules, with the times of the log as its clock: as one node
that knows everything immediately, or as a PoP with lag, clock differences and failing shards.
For a PoP, the report shows the effect of each of these. With --base it shows which clients a
change of rules would newly refuse or newly allow; --max-newly-refused makes that a check for CI.

If attacks are marked in the log, the report shows how much of them, and of everything else,
would have been refused: see docs/attacks.md.

From the decision logs of all nodes of a PoP, report what other limits would have decided.`,
		Example: `  edge replay rules rules.yaml access.log
  edge replay rules rules.yaml --nodes 3 --lag 20ms --lose-shard 10m+30s access.log
  edge replay rules new.yaml --base rules.yaml --max-newly-refused 100 access.log`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(m.files) > 0 {
				return r.run(cmd, args, &m)
			}
			if len(args) == 0 {
				return usageError{errors.New("no rules given"), firstExample(cmd)}
			}
			if m.files, err = splitList(args[0]); err != nil {
				return usageError{fmt.Errorf("rules: %w", err), ""}
			}
			return r.run(cmd, args[1:], &m)
		},
	}
	m.flags = cmd.Flags()
	r.define(cmd, append([]setting.Setting{
		{Name: "rules", Value: setting.List(&m.files, nil), Help: "`files` or directories of rules; then all arguments are logs"},
		{Name: "base", Value: setting.List(&m.base, nil), Help: "`files` of other rules to compare with: report which clients would be newly refused or newly allowed", Sample: "old.yaml"},
		{Name: "max-newly-refused", Value: setting.Parsed("requests", &m.maxNewlyRefused, "", setting.Whole[uint64](0, math.MaxUint64)), Help: "with --base: write Markdown, and exit with status 1 if more than this many `requests` are newly refused", Needs: []string{"base"}},
		{Name: "nodes", Value: setting.Int(&m.pop.Nodes, 1, 1, 1000, "number"), Help: "number of nodes of the PoP that enforces the rules", Sample: "3"},
		{Name: "shards", Value: setting.Int(&m.pop.Shards, 1, 1, 1000, "number"), Help: "number of counter shards of the PoP"},
		{Name: "lag", Value: setting.Parsed("duration", &m.pop.Lag, "", setting.Span(0, rule.MaxPeriod)), Help: "time until counts and mitigations take effect"},
		{Name: "spread", Value: setting.Parsed("text", &m.pop.Spread, "connection", analysis.ParseSpread), Help: "how requests reach nodes: by connection or by request"},
		{Name: "skew", Value: setting.Parsed("duration", &m.pop.Skew, "", setting.Span(0, rule.MaxPeriod)), Help: "maximum difference between the nodes' clocks", Needs: []string{"nodes"}},
		{Name: "lose-shard", Value: setting.ListOf(&m.pop.Losses, analysis.ParseLoss), Help: "`time` after the log's start when a shard fails: 10m, 10m+30s for half a minute, 2@10m the second shard"},
	}, clientFlags(&m.pop.Client, &m.top)...)...)
	return cmd
}

// rulesMode enforces rules, and may compare them with others.
type rulesMode struct {
	flags           *pflag.FlagSet
	files           []string
	base            []string
	maxNewlyRefused uint64
	pop             analysis.PoPOptions
	top             int

	rules, before *rule.Set
}

// clientFlags returns the flags that say which addresses identify a client, and how many clients to list.
func clientFlags(client *rule.ClientPrefix, top *int) []setting.Setting {
	return []setting.Setting{
		{Name: "ipv4-prefix", Value: setting.Int(&client.IPv4, 32, 1, 32, "bits"), Help: "leading `bits` of an IPv4 address that identify a client"},
		{Name: "ipv6-prefix", Value: setting.Int(&client.IPv6, 64, 1, 128, "bits"), Help: "leading `bits` of an IPv6 address that identify a client"},
		{Name: "top", Value: setting.Int(top, 10, 1, math.MaxInt, "number"), Help: "number of clients and paths to list"},
	}
}

func (m *rulesMode) prepare() (need accesslog.Fields, err error) {
	var skewErr, baseErr error
	if m.pop.Skew > 0 && m.pop.Nodes == 1 {
		skewErr = fail("skew", "--nodes 3", "needs at least 2 nodes")
	}
	m.rules, err = rulefile.Load(m.files...)
	if len(m.base) > 0 {
		m.before, baseErr = rulefile.Load(m.base...)
	}
	if err := errors.Join(skewErr, err, baseErr); err != nil {
		return 0, err
	}
	_, err = analysis.NewSimulation(m.pop, m.rules)
	return analysis.FieldsOf(m.sets()...), asUsage(err)
}

// sets returns all rules that are replayed.
func (m *rulesMode) sets() []*rule.Set {
	if m.before == nil {
		return []*rule.Set{m.rules}
	}
	return []*rule.Set{m.rules, m.before}
}

func (m *rulesMode) decided(log *decisions.Log) (*decisions.Report, error) {
	return log.Enforce(m.rules)
}

func (m *rulesMode) answer(ctx context.Context, in *input, to *reporter) error {
	garbage := 40 // percent: tables of counts have no pointers, so collecting often costs hardly any time
	if m.pop.Nodes > 1 || m.pop.Lag > 0 {
		garbage = 100 // a simulated PoP is full of pointers
	}
	defer collectGarbage(garbage)()
	if m.before != nil {
		return m.compare(ctx, in, to)
	}
	enforcer, err := analysis.NewEnforcer(analysis.EnforcementOptions{Rules: m.rules, PoP: m.pop, ReportOptions: analysis.ReportOptions{Top: m.top, Name: to.name}, Detail: to.page != nil})
	if err != nil {
		return err
	}
	if enforcer.Surveys() && in.log.Again() {
		err = in.entries(ctx, func(e *accesslog.Entry) error { enforcer.Survey(e); return nil })
	}
	if err == nil {
		err = m.play(ctx, in, enforcer.Add)
	}
	report := enforcer.Report() // ends its goroutines
	if err != nil {
		return err
	}
	return to.write(in, report.Document())
}

// play passes all requests of the log to add, and then reports which parts of the question the log
// cannot answer.
func (m *rulesMode) play(ctx context.Context, in *input, add func(*accesslog.Entry)) error {
	unseen := analysis.NewUnseen(m.sets()...)
	err := in.entries(ctx, func(e *accesslog.Entry) error {
		unseen.Note(e)
		add(e)
		return nil
	})
	if err != nil {
		return err
	}
	if err := unseen.Err(); err != nil {
		report(in.stderr, err)
	}
	stats := in.log.Stats()
	length := time.Duration(stats.Last-stats.First) * time.Microsecond
	for i, l := range m.pop.Losses {
		if l.At > length {
			report(in.stderr, fmt.Errorf("--lose-shard %s changes nothing: the log ends %v after its first request", given(m.flags, "lose-shard").texts[i], length))
		}
	}
	return nil
}

// compare reports what the rules would do differently from the previous ones.
func (m *rulesMode) compare(ctx context.Context, in *input, to *reporter) error {
	o := analysis.ComparisonOptions{Rules: m.rules, Base: m.before, PoP: m.pop, ReportOptions: analysis.ReportOptions{Top: m.top, Name: to.name}}
	isCheck := m.flags.Changed("max-newly-refused")
	if isCheck {
		o.MaxNewlyRefused = &m.maxNewlyRefused
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
