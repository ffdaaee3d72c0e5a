package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/pop/rule"
	"github.com/edgelimit/edge/pop/rulefile"
)

// A decisionReplay evaluates the decision logs of nodes.
type decisionReplay struct {
	files    []string
	stdin    io.Reader
	rules    []string
	accuracy bool
}

// areDecisionLogs reports whether files are decision logs, judging by how the first one begins that is not
// empty and can be read twice. It returns a reader of the whole standard input.
func areDecisionLogs(files []string, stdin io.Reader) (bool, io.Reader) {
	for _, name := range files {
		text := stdin
		if name == "-" {
			buffered := bufio.NewReaderSize(stdin, 64<<10)
			head, _ := buffered.Peek(64 << 10) // a later read returns any error
			text, stdin = bytes.NewReader(head), buffered
		} else if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			continue // a pipe is read once; of others, opening them says what is wrong
		}
		opened, err := accesslog.OpenText(name, text)
		if err != nil {
			continue
		}
		head := make([]byte, 64)
		n, _ := io.ReadFull(opened, head)
		_ = opened.Close()
		if n > 0 {
			return decisions.IsLog(head[:n]), stdin
		}
	}
	return false, stdin
}

// run answers.
func (r *decisionReplay) run(given *pflag.FlagSet, out outputFlags, stdout, stderr io.Writer) error {
	if err := foreign(given, "decision logs", picked(given, "rules", "accuracy", "json", "markdown", "html", "progress")); err != nil {
		return err
	}
	var set *rule.Set
	if len(r.rules) > 0 {
		var err error
		if set, err = rulefile.Load(r.rules...); err != nil {
			return err
		}
	}
	to, err := out.open(stdout)
	if err != nil {
		return err
	}
	log := decisions.New()
	for _, name := range r.files {
		if err := r.read(log, name); err != nil {
			return err
		}
	}
	var found *decisions.Report
	switch {
	case set != nil:
		found, err = log.Enforce(set)
	case r.accuracy:
		found, err = log.Accuracy()
	default:
		found, err = log.Overview()
	}
	if wrong := new(decisions.RuleError); errors.As(err, &wrong) {
		return hintedError{err, "change only limits, mitigation_timeout, count_while_mitigated or action; for other changes replay access logs"}
	}
	if errors.Is(err, decisions.ErrEmpty) {
		return hintedError{err, "did any client in the sample send a request? decision_log_share is the share of clients in it"}
	}
	if err != nil {
		return err
	}
	for _, s := range found.Samples {
		fmt.Fprintf(stderr, "edge: %s:%d: %s\n", s.File, s.Line, s.Reason)
	}
	d := found.Document()
	if set == nil && !r.accuracy {
		var names []string
		for _, name := range r.files {
			names = append(names, shellQuote(name))
		}
		d.Sections = append(d.Sections, whatNext([]suggestedNext{
			{"edge replay --accuracy " + strings.Join(names, " "), "how often these decisions differ from an exact limiter's"},
			{"edge replay --rules rules.yaml " + strings.Join(names, " "), "what other limits would have decided"},
		}))
	}
	return to.emit(strings.Join(r.files[:min(3, len(r.files))], ", "), nil, d)
}

func (r *decisionReplay) read(log *decisions.Log, name string) error {
	text, err := accesslog.OpenText(name, r.stdin)
	if err != nil {
		return err
	}
	defer text.Close()
	return log.Read(name, text)
}
