package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/internal/prose"
)

// areDecisionLogs reports whether files are decision logs, judging by the beginning of the first one that is not
// empty and can be read twice. cmd can still read its whole standard input.
func areDecisionLogs(cmd *cobra.Command, files []string) bool {
	for _, name := range files {
		var text io.Reader
		switch {
		case name == "-":
			buffered := bufio.NewReaderSize(cmd.InOrStdin(), 64<<10)
			cmd.SetIn(buffered)
			head, _ := buffered.Peek(64 << 10) // a later read returns any error
			text = bytes.NewReader(head)
		case isPipe(name):
			continue
		}
		opened, err := accesslog.OpenText(name, text)
		if err != nil {
			continue // the error is reported later
		}
		head := make([]byte, 64)
		n, _ := io.ReadFull(opened, head)
		_ = opened.Close()
		if n > 0 {
			return decisions.IsLog(head[:n])
		}
	}
	return false
}

// replayDecisions answers q from the decision logs of nodes.
func (r *replay) replayDecisions(cmd *cobra.Command, files []string, q question) error {
	var errs []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if isSet(cmd.Flags(), f.Name) && !slices.Contains([]string{"rules", "json", "markdown", "html", "progress"}, f.Name) {
			errs = append(errs, usageError{fmt.Errorf("--%s does not apply to decision logs", f.Name), "leave it out"})
		}
	})
	if errs != nil {
		return errors.Join(errs...)
	}
	if err := r.out.open(cmd.OutOrStdout()); err != nil {
		return err
	}
	log := decisions.New()
	for _, name := range files {
		text, err := accesslog.OpenText(name, cmd.InOrStdin())
		if err != nil {
			return err
		}
		err = log.Read(name, text)
		_ = text.Close()
		if err != nil {
			return err
		}
	}
	found, err := q.decided(log)
	if err != nil {
		return err
	}
	for _, s := range found.Samples {
		report(cmd.ErrOrStderr(), fmt.Errorf("%s:%d: %s", s.File, s.Line, s.Reason))
	}
	d := found.Document()
	if _, ok := q.(summary); ok {
		named := shellQuoteAll(files)
		d.Sections = append(d.Sections, analysis.WhatNext([]analysis.Suggestion{
			{Command: "edge replay accuracy" + named, Says: "how often these decisions differ from an exact limiter's"},
			{Command: "edge replay rules rules.yaml" + named, Says: "what other limits would have decided"},
		}))
	}
	return r.out.emit(prose.FirstThree(files), nil, d)
}
