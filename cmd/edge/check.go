package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis/cases"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule/check"
	rulefile "github.com/edgelimit/edge/rule/file"
)

func newCheck() *cobra.Command {
	var o check.WorstCase
	var asJSON, schema bool
	var tests []string
	var nodes int
	flags := []setting.Setting{
		{Name: "json", Value: setting.Bool(&asJSON, false), Help: "write JSON, including errors"},
		{Name: "test", Value: repeatable(setting.List(&tests, nil)), Help: "run the cases in this `file`; may be repeated"},
		{Name: "schema", Value: setting.Bool(&schema, false), Help: "write only the JSON Schema of rules files, for editors"},
		{Name: "rate", Value: setting.Parsed("rate", &o.Rate, fmt.Sprint(check.Usual.Rate), setting.Number(0, 1e9)), Help: "requests per second of one key, for the worst case", Contradicts: "test"},
		{Name: "lag", Value: setting.Parsed("duration", &o.Lag, check.Usual.Lag.String(), setting.Span(0, time.Hour)), Help: "time until every node knows of a mitigation, for the worst case; the default holds even on saturated nodes, see edge_counting_lag_seconds", Contradicts: "test"},
		{Name: "answer-time", Value: setting.Parsed("duration", &o.Answer, check.Usual.Answer.String(), setting.Span(0, time.Hour)), Help: "time that the origin takes to respond, for the worst case", Contradicts: "test"},
		{Name: "max-nodes", Value: setting.Int(&nodes, counter.MinNodes, 1, pop.MaxNodes, "nodes"), Help: "maximum number of nodes at the same time, as in the nodes' settings; the counters of limits with sub_windows need room for all of them", Contradicts: "test"},
	}
	cmd := &cobra.Command{
		Use:   "check FILE…",
		Short: "Check rules and explain what they mean, or check a node's settings",
		Long: `Check rules, explain each in a sentence, and compute how many requests each lets through in
the worst case. The exit status is 1 if a rule is invalid. A directory stands for the .yaml
and .yml files in it; all files together are one set. If FILE is -, standard input is read.

For a file with a node's settings, as for edge node --config, check everything that the node would read:
the settings, and the rules, certificates, keys, tokens and secrets that they name. Also check
whether names resolve. This opens no socket. Variables EDGE_… apply, as they do for the node.

The worst case is that of docs/design.md: at most 2·(threshold + K) + 1 requests of a key pass
in any period. K is rate × lag, or rate × (lag + answer time) for a rule that counts responses.
A request with several values of a characteristic counts under each combination of them, up to 4.
Notes say which requests evade a rule.

For a limit with sub_windows, check shows the number and length of its sub-windows, and the
maximum threshold and number of nodes for them. It is an error if that number of nodes is
less than --max-nodes. A node then refuses to start, too.

With --test, run the test cases in a file against a node and report those that fail. A case
is a list of requests with times and expected verdicts: see docs/rules.md. The rules are the
FILE arguments, or else those named in the test file.`,
		Example: `  edge check rules.yaml
  edge check /etc/edge/node.yaml
  edge check --rate 2000 --lag 25ms rules.d
  edge check --max-nodes 40 rules.yaml
  edge check --json rules.yaml | jq '.rules[].limits'
  edge check --test cases.yaml
  edge check --schema > rules.schema.json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, files []string) error {
			out := cmd.OutOrStdout()
			switch {
			case schema && (len(files) > 0 || asJSON || tests != nil):
				return usageError{errors.New("--schema takes no files"), "edge check --schema > rules.schema.json"}
			case schema:
				_, err := out.Write(rulefile.Schema)
				return err
			case tests != nil:
				return checkTests(out, tests, files, asJSON)
			case len(files) == 0:
				return usageError{errors.New("no rules file given"), firstExample(cmd)}
			case len(files) == 1 && isNodeFile(files[0]):
				return checkNode(cmd, files[0], asJSON)
			}
			rules, err := readRules(cmd.InOrStdin(), files)
			if err == nil {
				err = rulefile.CheckNodes(rules.Set, nodes)
			}
			if asJSON {
				return errors.Join(writeJSON(out, check.NewResult(rules, err, o), "  "), err)
			}
			if err != nil {
				return err
			}
			_, err = io.WriteString(out, check.Text(rules, o))
			return err
		},
	}
	define(cmd.Flags(), flags)
	return cmd
}

// readRules reads rules files, or standard input for -.
func readRules(stdin io.Reader, files []string) (rulefile.Contents, error) {
	if !slices.Equal(files, []string{"-"}) {
		return rulefile.Read(files...)
	}
	text, err := strictyaml.Read("standard input", stdin)
	if err != nil {
		return rulefile.Contents{}, err
	}
	set, err := rulefile.Parse("standard input", text)
	return rulefile.Contents{Set: set}, err
}

// isNodeFile reports whether a file has settings of a node: one that no rules file has, or names of rules files. It reads
// no pipe, which can be read only once, and no file that is much longer than settings are.
func isNodeFile(file string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return false
	}
	text, err := os.ReadFile(file)
	root := strictyaml.New(file, text).Parse()
	if err != nil || root == nil || !strictyaml.IsMapping(root) {
		return false
	}
	found := false
	for pair := range slices.Chunk(root.Content, 2) {
		switch name := pair[0].Value; {
		case name == "cases":
			return false // test cases of rules, which name rules files, too
		case name == "rules":
			found = found || slices.ContainsFunc(append(pair[1].Content, pair[1]), strictyaml.IsString)
		default:
			found = found || slices.ContainsFunc(append(pop.Settings(new(pop.Options)), new(logging).settings()...), func(row setting.Setting) bool { return key(row.Name) == name })
		}
	}
	return found
}

// checkNode checks the settings in a file as a node that reads the file does, and that the names in them resolve.
func checkNode(cmd *cobra.Command, file string, asJSON bool) error {
	if asJSON {
		return usageError{fmt.Errorf("%s has settings of a node; --json is for rules", file), "edge check " + file}
	}
	node := newNode(func(ctx context.Context, o pop.Options) error {
		n, err := pop.New(o)
		if err = errors.Join(err, resolve(ctx, o)); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: node %s with %s\n", file, o.Name, chart.Count(len(n.Rules().Rules()), "rule"))
		return err
	})
	node.SilenceUsage, node.SilenceErrors = true, true
	node.SetErr(cmd.ErrOrStderr())
	node.SetArgs([]string{"--config", file})
	return node.ExecuteContext(cmd.Context())
}

// resolve returns an error for each host name in o that does not resolve.
func resolve(ctx context.Context, o pop.Options) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var errs []error
	for name, addrs := range map[string][]string{
		"shard": o.Shards, "join": o.Gossip.Join, "origin": {o.Origin}, "acme-origin": {o.ACMEOrigin}, "host-origin": slices.Collect(maps.Values(o.HostOrigins)),
	} {
		for _, addr := range addrs {
			host, _, _ := net.SplitHostPort(addr) // checked before
			if at, err := url.Parse(addr); err == nil && at.Host != "" {
				host, addr = at.Hostname(), at.Redacted()
			}
			_, err := net.DefaultResolver.LookupHost(ctx, host)
			if unknown, ok := errors.AsType[*net.DNSError](err); host != "" && ok {
				errs = append(errs, &setting.Error{Setting: name, Value: strconv.Quote(addr), Problem: "does not resolve: " + unknown.Err})
			}
		}
	}
	return errors.Join(errs...)
}

// checkTests runs the test cases of files against a node with rules or, if rules is empty, with
// those that each file names.
func checkTests(w io.Writer, files, rules []string, asJSON bool) error {
	result := struct {
		OK     bool              `json:"ok"`
		Files  []*cases.Report   `json:"files"`
		Errors []*rulefile.Error `json:"errors"`
	}{Files: []*cases.Report{}}
	var mistake, failure error
	for _, file := range files {
		report, err := runCases(file, rules)
		if err != nil {
			mistake = errors.Join(mistake, err)
			continue
		}
		result.Files, failure = append(result.Files, report), errors.Join(failure, report.Err())
	}
	err := errors.Join(mistake, failure)
	result.OK, result.Errors = err == nil, check.Errors(mistake)
	if asJSON {
		return errors.Join(writeJSON(w, result, "  "), err)
	}
	for _, report := range result.Files {
		err = errors.Join(report.WriteText(w), err)
	}
	return err
}

// runCases runs the test cases of a file.
func runCases(file string, rules []string) (*cases.Report, error) {
	text, err := strictyaml.ReadFile(file)
	if err != nil {
		return nil, err
	}
	cases, err := cases.Parse(file, text)
	if err != nil {
		return nil, err
	}
	if len(rules) == 0 {
		rules = cases.Paths()
	}
	if len(rules) == 0 {
		return nil, complaint.WithHint(fmt.Errorf("%s names no rules", file), fmt.Sprintf("add rules: [rules.yaml] to it, or run edge check --test %s rules.yaml", file))
	}
	set, err := rulefile.Load(rules...)
	if err != nil {
		return nil, err
	}
	return cases.Run(set)
}
