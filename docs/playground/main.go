// Command playground runs edge check, edge import and edge replay for the playground, a page that loads it
// as WebAssembly. Usage:
//
//	playground rules KIND FORMAT CONFIG LOG…
//	playground sweep FORMAT LOG…
//
// The first form checks rules and replays them; the second looks for a threshold and summarizes the log. The page runs
// both in parallel. CONFIG is a rules file if KIND is edge, and otherwise a file that edge import KIND reads. FORMAT is
// the format of the logs; if empty, it is detected. Each line of the output is a JSON object with one result. Without
// arguments, the program lists kinds and formats.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/reading"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/internal/version"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/check"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/edgelimit/edge/rule/translate"
)

func main() {
	debug.SetGCPercent(200) // there is one core, and memory is freed when the program ends
	var err error
	switch args := os.Args[1:]; {
	case len(args) > 3 && args[0] == "rules":
		err = answer(args[1], args[2], args[3], args[4:])
	case len(args) > 2 && args[0] == "sweep":
		err = replay(args[1], args[2:], false, newSweep)
	default:
		write(result{Kinds: translate.Kinds(), Formats: accesslog.Formats()})
	}
	if err != nil {
		report(err, "")
		os.Exit(1)
	}
}

// A result is a line of the output. Only one field is set.
type result struct {
	Kinds   []string           `json:"kinds,omitempty"`
	Formats []accesslog.Format `json:"formats,omitempty"`

	Imported string        `json:"imported,omitempty"` // rules
	Check    *check.Result `json:"check,omitempty"`
	Text     string        `json:"text,omitempty"` // of edge check
	Report   *document     `json:"report,omitempty"`
}

// A document is a report of edge replay.
type document struct {
	Name string          `json:"name"` // of the command
	Page string          `json:"page"` // as by --html
	JSON json.RawMessage `json:"json"` // as by --json
}

func write(r result) {
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	_ = e.Encode(r) // it fails only if the page is gone
}

// report writes err to stderr as a command does, then lines.
func report(err error, lines string) {
	_ = complaint.Write(os.Stderr, err, prose.Hint)
	_, _ = os.Stderr.WriteString(lines)
}

// answer checks rules, and replays them if there are logs.
func answer(kind, format, config string, logs []string) error {
	rules, err := read(kind, config)
	if err == nil {
		err = rulefile.CheckNodes(rules.Set, counter.MinNodes)
	}
	found := check.NewResult(rules, err, check.Usual)
	write(result{Check: &found})
	if err != nil {
		return err
	}
	write(result{Text: check.Text(rules, check.Usual)})
	if len(logs) == 0 {
		return nil
	}
	return replay(format, logs, false, func() (question, error) { return newEnforcement(rules.Set) })
}

// read reads rules, or translates another program's configuration into rules.
func read(kind, config string) (rulefile.Contents, error) {
	if kind == "edge" {
		return rulefile.Read(config)
	}
	text, err := strictyaml.ReadFile(config)
	if err != nil {
		return rulefile.Contents{}, err
	}
	t, err := translate.Files(kind, translate.File{Name: config, Text: text})
	if err != nil {
		return rulefile.Contents{}, err
	}
	write(result{Imported: string(t.Text())})
	set, err := rulefile.Parse("imported.yaml", t.Text())
	return rulefile.Contents{Set: set}, err
}

// A question is one analysis of the logs.
type question struct {
	need   accesslog.Fields
	add    func(*accesslog.Entry) error
	answer func(log *reading.Log) error
}

func newEnforcement(rules *rule.Set) (question, error) {
	e, err := analysis.NewEnforcer(analysis.EnforcementOptions{Rules: rules, Detail: true})
	unseen := analysis.NewUnseen(rules)
	return question{
		need: analysis.FieldsOf(rules),
		add: func(entry *accesslog.Entry) error {
			unseen.Note(entry)
			e.Add(entry)
			return nil
		},
		answer: func(log *reading.Log) error {
			if err := unseen.Err(); err != nil {
				report(err, "")
			}
			return writeReport(log, "rules", e.Report().Document())
		},
	}, err
}

func newSweep() (question, error) {
	var o analysis.SweepOptions
	var overview analysis.Overview
	s, err := analysis.NewSweep(o)
	return question{
		need: o.Fields(),
		add:  func(entry *accesslog.Entry) error { return errors.Join(overview.Add(entry), s.Add(entry)) },
		answer: func(log *reading.Log) error {
			overview.Finish(nil)
			report, err := s.Report()
			if err != nil {
				return err
			}
			err = writeReport(log, "sweep", report.Document())
			return errors.Join(err, writeReport(log, "overview", overview.Document()))
		},
	}, err
}

// replay reads the logs. If entries come too late, it starts again and sorts all of them.
func replay(format string, logs []string, sorted bool, ask func() (question, error)) error {
	q, err := ask()
	if err := errors.Join(err, reading.CheckFormat(format)); err != nil {
		return err
	}
	o := accesslog.Options{Format: format, Need: q.need, Disk: sorted}
	if sorted {
		o.Buffer = math.MaxInt // a page has no disk
	}
	opened, err := accesslog.Open(logs, nil, o)
	if err != nil {
		return err
	}
	defer opened.Close()
	log := &reading.Log{Log: opened, Report: report}
	err = log.Explain(log.Entries(context.Background(), q.add))
	switch {
	case log.Disordered && !sorted:
		return replay(format, logs, true, ask)
	case err != nil:
		return err
	}
	return q.answer(log)
}

// writeReport writes a report about log. name is the command's.
func writeReport(log *reading.Log, name string, d chart.Document) error {
	now := time.Now().UTC().Truncate(time.Second)
	d.Run = chart.Run{Input: reading.Names(log.Stats()), Version: version.String(), Date: now, Log: log.Stats()}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	var page strings.Builder
	if err := d.WriteHTML(&page); err != nil {
		return err
	}
	write(result{Report: &document{name, page.String(), data}})
	return nil
}
