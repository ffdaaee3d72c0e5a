package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// areDecisionLogs reports whether files are decision logs, judging by the beginning of the first one that is not
// empty and can be read twice. It returns a reader of the whole standard input.
func areDecisionLogs(files []string, stdin io.Reader) (bool, io.Reader) {
	for _, name := range files {
		text := stdin
		if name == "-" {
			buffered := bufio.NewReaderSize(stdin, 64<<10)
			head, _ := buffered.Peek(64 << 10) // a later read returns any error
			text, stdin = bytes.NewReader(head), buffered
		} else if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			continue // a pipe can be read only once; for others, opening them reports what is wrong
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

// replayDecisions evaluates the decision logs of nodes: with the rules of the files, with an exact limiter if
// mode is accuracy, or else as an overview.
func replayDecisions(files []string, stdin io.Reader, mode string, rules []string, out outputFlags, cmd *cobra.Command) (err error) {
	var set *rule.Set
	if len(rules) > 0 {
		if set, err = rulefile.Load(rules...); err != nil {
			return err
		}
	}
	to, err := out.open(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	log := decisions.New()
	for _, name := range files {
		text, err := accesslog.OpenText(name, stdin)
		if err != nil {
			return err
		}
		err = log.Read(name, text)
		_ = text.Close()
		if err != nil {
			return err
		}
	}
	var found *decisions.Report
	switch {
	case set != nil:
		found, err = log.Enforce(set)
	case mode == "accuracy":
		found, err = log.Accuracy()
	default:
		found, err = log.Overview()
	}
	switch {
	case errors.As(err, new(*decisions.RuleError)):
		return hintedError{err, "change only limits, mitigation_timeout, count_while_mitigated or action; for other changes replay access logs"}
	case errors.Is(err, decisions.ErrEmpty):
		return hintedError{err, "did any client in the sample send a request? decision_log_share is the share of clients in it"}
	case err != nil:
		return err
	}
	for _, s := range found.Samples {
		report(cmd.ErrOrStderr(), fmt.Errorf("%s:%d: %s", s.File, s.Line, s.Reason))
	}
	d := found.Document()
	if set == nil && mode != "accuracy" {
		named := shellQuoteAll(files)
		d.Sections = append(d.Sections, whatNext([]suggestedNext{
			{"edge replay --accuracy" + named, "how often these decisions differ from an exact limiter's"},
			{"edge replay --rules rules.yaml" + named, "what other limits would have decided"},
		}))
	}
	return to.emit(strings.Join(files[:min(3, len(files))], ", "), nil, d)
}
