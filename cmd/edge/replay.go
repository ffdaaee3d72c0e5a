package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/accuracy"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/pop/setting"
)

// A replayMode is one of the questions that edge replay answers, with its own flags.
type replayMode struct {
	flags *pflag.FlagSet
	check func() error            // checks the flags before the log is opened
	needs func() accesslog.Fields // which fields of entries it uses; 0 if it only uses arrivals
	run   func(ctx context.Context, in *input, to destination) error
}

func newReplay() *cobra.Command {
	var in inputFlags
	var out outputFlags
	var generate generateFlags
	var shared sharedFlags
	rules, sweep, accurate := rulesMode{shared: &shared}, sweepMode{shared: &shared}, accuracyMode{in: &in}
	reading, general, generating, common := in.flags(), out.flags(), generate.flags(), shared.flags()
	general.AddFlagSet(reading)
	names, modes := []string{"rules", "sweep", "accuracy"}, map[string]replayMode{
		"rules":    {rules.flags(common), rules.check, rules.needs, rules.run},
		"sweep":    {sweep.flags(common), sweep.check, sweep.needs, sweep.run},
		"accuracy": {accurate.flags(), accurate.check, func() accesslog.Fields { return 0 }, accurate.run},
		"":         {nil, func() error { return nil }, func() accesslog.Fields { return accesslog.Addr }, overviewOf(reading)},
	}
	cmd := &cobra.Command{
		Use:   "replay [flags] FILE…",
		Short: "Report what limits would have done to the requests in access logs",
		Long: `Read access logs, oldest file first, and report what limits would have done to the requests
in them. If FILE is -, standard input is read. Formats are detected from the first lines. Logs
may be compressed with gzip, zstd or bzip2.

--rules reports what rules would have refused: which clients and paths, from when, for how
long, and where an exact count would have decided differently. The nodes' own code enforces the
rules, with the times of the log as its clock: as one node that knows everything immediately, or
as a PoP with lag, clock differences and failing shards. For a PoP, the report shows the effect of
each of these. With --base it shows which clients a change of rules would newly refuse or
newly allow; --max-newly-refused makes that a check for CI.

--sweep tries many thresholds and periods in one pass, and recommends the smallest
threshold that would have affected hardly any clients.

--accuracy compares estimates of the rate with the exact sliding log, at every request,
and counts every request: none is refused. It reports how many decisions would have been
wrong, for each estimator, and how much memory a client takes.

Given the decision logs (decision_log) of all nodes of a PoP, --accuracy reports how often
the nodes decided differently from an exact limiter, and --rules what other limits would have
decided; see docs/decisions.md.

--generate writes a generated log instead, the same one each time. With --over it adds the
attacks of a mix to the requests of a log, and marks them with the field attack. For a log with
such marks --rules reports how much of the attack, and of everything else, would have been
refused; see docs/attacks.md.

Estimators are ` + wrap(strings.Join(accuracy.EstimatorNames(), ", "), 88) + `;
any number of sub-windows is possible.

Without --rules, --sweep, --accuracy or --generate it summarizes the logs, and suggests what
to try next.

The formats are listed below. Also accepted are patterns in the syntax of nginx's log_format or
Apache's LogFormat, JSON and logfmt with other field names, as in json:time=at,client=ip, and
the columns of a W3C log without #Fields:

` + strings.TrimRight(formats(), "\n"),
		Example: `  edge replay access.log
  edge replay --rules rules.yaml access.log
  edge replay --rules rules.yaml --nodes 3 --lag 20ms --lose-shard 10m+30s access.log
  edge replay --rules new.yaml --base rules.yaml --max-newly-refused 100 access.log
  edge replay --sweep --by ip --by ip+path access.log
  edge replay --accuracy --html accuracy.html access.log
  edge replay --accuracy --limit 10/10s,50/1m,1000/1h --phases 10 access.log
  edge replay --pattern '%h %l %u %t "%r" %>s %b' access.log
  edge replay --accuracy --json access.log | jq '.results[] | [.estimator, .wrong_pct]'
  edge replay --accuracy node-1.decisions node-2.decisions node-3.decisions
  edge replay --generate web --requests 10000 | edge replay --accuracy -
  edge replay --generate attack --over access.log > attacked.log`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, files []string) error {
			flags := cmd.Flags()
			name, err := onlyOne(flags, append(names, "generate")...)
			if err != nil {
				return err
			}
			if name == "generate" {
				groups := []*pflag.FlagSet{generating}
				if len(generate.over) > 0 {
					groups = append(groups, reading)
				}
				if err := foreign(flags, "--generate", groups...); err != nil {
					return err
				}
				ctx, stop := untilSignal(cmd.Context())
				defer stop()
				return generate.write(ctx, files, &in, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if len(files) == 0 {
				return usageError{errors.New("no log given"), "edge replay access.log; - is standard input"}
			}
			if err := onlyOnce(files); err != nil {
				return err
			}
			decided, stdin := areDecisionLogs(files, cmd.InOrStdin())
			if decided {
				err := foreign(flags, "decision logs", picked(flags, "rules", "accuracy", "json", "markdown", "html", "progress"))
				if err != nil {
					return err
				}
				return replayDecisions(files, stdin, name, rules.files, out, cmd)
			}
			mode, where := modes[name], "--"+name
			if name == "" {
				where = "a summary"
			}
			if err := errors.Join(foreign(flags, where, general, mode.flags), mode.check()); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			var to *destination
			return in.read(files, mode.needs(), stdin, cmd.ErrOrStderr(), func(in *input) (err error) {
				in.anonymize = out.anonymize
				if to == nil {
					to, err = out.open(cmd.OutOrStdout())
				}
				if err != nil {
					return err
				}
				return mode.run(ctx, in, *to)
			})
		},
	}
	var groups []flagGroup
	for _, name := range names {
		groups = append(groups, flagGroup{"Flags for --" + name, modes[name].flags})
	}
	groupFlags(cmd, append(groups, flagGroup{"Flags for --generate", generating}, flagGroup{"Flags for everything but --generate", general})...)
	return cmd
}

// outputFlags configures how an answer is written.
type outputFlags struct {
	asJSON    bool
	markdown  bool
	anonymize bool
	key       string
	html      string
}

func (f *outputFlags) flags() *pflag.FlagSet {
	return flagSet([]setting.Setting{
		{Name: "json", Value: setting.Bool(&f.asJSON, false), Help: "write JSON"},
		{Name: "markdown", Value: setting.Bool(&f.markdown, false), Help: "write Markdown, for example for a pull request", Contradicts: "json"},
		{Name: "html", Value: setting.Text(&f.html, "", pageName), Help: "also write a page with plots to this `file`"},
		{Name: "anonymize", Value: setting.Bool(&f.anonymize, false), Help: "replace clients' names with pseudonyms"},
		{Name: "anonymize-key", Value: setting.Text(&f.key, "", nil), Help: "`key` of the pseudonyms: the same key gives the same pseudonyms (default: random)", Needs: []string{"anonymize"}},
	})
}

// open returns the destination of answers, which is stdout and the page. It opens the page now, so
// that errors show before a long log is read.
func (f *outputFlags) open(stdout io.Writer) (d *destination, err error) {
	d = &destination{outputFlags: *f, stdout: stdout}
	if f.anonymize {
		d.name = analysis.Pseudonyms([]byte(f.key))
	}
	d.page, err = createFile(f.html)
	return d, err
}

// createFile opens a file to write, unless name is empty. Its contents stay until writeFile.
func createFile(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
}

// writeFile replaces the contents of file, unless it is nil.
func writeFile(file *os.File, write func(io.Writer) error) error {
	if file == nil {
		return nil
	}
	if err := file.Truncate(0); err != nil && !errors.Is(err, syscall.EINVAL) { // pipes cannot be truncated
		return errors.Join(err, file.Close())
	}
	return errors.Join(write(file), file.Close())
}

// commandLine returns a command in shell syntax, without secrets.
func commandLine(args []string) string {
	words := []string{filepath.Base(args[0])}
	secret := false
	for _, word := range args[1:] {
		name, _, assigned := strings.Cut(word, "=")
		isSecret := slices.Contains([]string{"--anonymize-key", "--header", "-H", "--body"}, name)
		switch {
		case secret:
			word = "…"
		case isSecret && assigned:
			word = name + "=…"
		case strings.HasPrefix(word, "-H") && len(word) > 2:
			word = "-H…"
		default:
			word = shellQuote(word)
		}
		secret = isSecret && !assigned && !secret
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// plainWord matches words that a shell does not interpret.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./…-]+$`)

// shellQuoteAll returns words in shell syntax, each after a space.
func shellQuoteAll(words []string) string {
	var b strings.Builder
	for _, word := range words {
		b.WriteString(" " + shellQuote(word))
	}
	return b.String()
}

func shellQuote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// pageName checks the name of a page, so that a log given by mistake is not overwritten.
func pageName(name string) error {
	if strings.HasSuffix(name, ".html") {
		return nil
	}
	return errors.New("must end in .html")
}

// A destination is where an answer is written.
type destination struct {
	outputFlags
	stdout io.Writer
	page   *os.File       // nil if none is wanted
	name   analysis.Namer // nil if clients keep their names
}

// write writes a report about in.
func (d destination) write(in *input, report chart.Document) error {
	return d.emit(in.names(), in.stats(), report)
}

// emit writes a report about input. read describes what was read from it.
func (d destination) emit(input string, read any, report chart.Document) error {
	report.Run = chart.Run{Input: input, Command: commandLine(os.Args), Version: version(), Date: time.Now().UTC().Truncate(time.Second), Log: read}
	err := writeFile(d.page, report.WriteHTML)
	switch {
	case d.asJSON:
		return errors.Join(err, writeJSON(d.stdout, report, "  "))
	case d.markdown:
		return errors.Join(err, report.WriteMarkdown(d.stdout))
	}
	return errors.Join(err, report.WriteText(d.stdout))
}

// writeJSON writes v as JSON, on one line if indent is empty.
func writeJSON(w io.Writer, v any, indent string) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return errors.Join(err, writePrintable(w, b.String()))
}

// A flagGroup holds flags that the help shows together.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// groupFlags adds the flags of groups to cmd. Its help shows the groups in this order.
func groupFlags(cmd *cobra.Command, groups ...flagGroup) {
	cmd.Flags().SortFlags = false
	for _, g := range groups {
		cmd.Flags().AddFlagSet(g.flags)
	}
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		var b strings.Builder
		fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
		for _, g := range groups {
			fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(helpWidth))
		}
		_, err := io.WriteString(cmd.OutOrStderr(), b.String())
		return err
	})
}

const helpWidth = 100 // columns
