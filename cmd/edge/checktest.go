package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/edgelimit/edge/analysis/cases"
	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule/check"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// checkTests runs the test cases of files against a node with rules or, if rules is empty, with
// those that each file names.
func checkTests(w io.Writer, files, rules []string, asJSON bool) error {
	result := struct {
		OK     bool              `json:"ok"`
		Files  []*cases.Report   `json:"files"`
		Errors []*rulefile.Error `json:"errors"`
	}{Files: []*cases.Report{}}
	var wrong, failed []error
	for _, file := range files {
		report, err := runCases(file, rules)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		result.Files = append(result.Files, report)
		failed = append(failed, report.Err())
	}
	failure, mistake := errors.Join(failed...), errors.Join(wrong...)
	result.OK, result.Errors = failure == nil && mistake == nil, check.Errors(mistake)
	err := errors.Join(mistake, failure)
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
