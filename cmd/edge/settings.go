package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/pop/setting"
)

// A command's settings are rows of a table; see [pop.Settings]. Each is a flag (--queue-size), a
// variable (EDGE_QUEUE_SIZE) and a key of the YAML file that --config names (queue_size, as keys of
// rules are spelled). Flags override variables, and variables override the file.

// settings are the settings of a command.
type settings struct {
	flags *pflag.FlagSet
	file  string // may be empty
}

// withSettings adds the settings of rows to cmd. Once they are set, cmd calls check and, if it returns
// no error, run.
func withSettings(cmd *cobra.Command, rows []setting.Setting, check func() error, run func(cmd *cobra.Command) error) *cobra.Command {
	s := &settings{flags: cmd.Flags()}
	s.flags.StringVar(&s.file, "config", os.Getenv(variable("config")), "YAML `file` whose keys are these settings")
	s.flags.Lookup("config").DefValue = "" // in the help
	define(s.flags, rows)
	cmd.Args = noArgs
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		s.readVariables()
		err := s.readFile()
		if err != nil {
			check = func() error { return nil }
		}
		return s.explain(errors.Join(err, s.set(check)))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return s.explain(run(cmd)) }
	cmd.Long += `

Every setting is a flag, a variable EDGE_… (--log-level is EDGE_LOG_LEVEL) and a key of the
file that --config or EDGE_CONFIG names (log_level: info). Flags override variables, and
variables override the file. Elements of lists are separated by commas; the file may also
have YAML lists.`
	return cmd
}

func isList(v setting.Value) bool { return v.Type == "list" || v.Type == "map" }

// elements returns the values that text holds for v: one, or those of a list.
func elements(v setting.Value, text string) ([]string, error) {
	if isList(v) {
		return splitList(text)
	}
	return []string{text}, nil
}

// splitList returns the elements of a list, which are separated by commas or newlines.
func splitList(text string) (all []string, err error) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		for each := range strings.SplitSeq(line, ",") {
			if each = strings.TrimSpace(each); each == "" {
				return nil, errors.New("an element of the list is empty")
			}
			all = append(all, each)
		}
	}
	return all, nil
}

// variable returns the name of a setting's environment variable, and key its key in a file.
func variable(name string) string { return "EDGE_" + strings.ToUpper(key(name)) }
func key(name string) string      { return strings.ReplaceAll(name, "-", "_") }

// readVariables reads the variables of settings without a flag.
func (s *settings) readVariables() {
	for _, v := range settingsOf(s.flags) {
		if text, ok := os.LookupEnv(variable(v.row.Name)); ok && v.shown == "" {
			_ = v.Set(text) // it never fails
			v.shown = variable(v.row.Name)
		}
	}
}

// set sets the given values or defaults, and checks them. It returns all errors, joined.
func (s *settings) set(check func() error) error {
	var errs []error
	wrong := map[string]bool{}
	for _, v := range settingsOf(s.flags) {
		texts := v.texts
		if v.shown == "" {
			if v.row.Value.Default == "" {
				continue
			}
			texts = []string{v.row.Value.Default}
		}
		err := v.row.Set(texts)
		if v.err != nil {
			err = usageError{fmt.Errorf("%s: %w", v.shown, v.err), ""}
		}
		wrong[v.row.Name] = err != nil
		errs = append(errs, err)
	}
	for _, err := range prose.SingleErrors(check()) {
		// Leave out errors that merely follow from a value that could not be parsed.
		if e, ok := errors.AsType[*setting.Error](err); !ok || !wrong[e.Setting] && !wrong[e.Other] && !wrong[e.Instead] {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// explain returns the errors in err, with the places where settings were given: first those about the file, in the
// order of its lines, then the others.
func (s *settings) explain(err error) error {
	line := func(err error) int {
		if place, ok := errors.AsType[*strictyaml.Error](err); ok && place.File == s.file {
			return place.Line
		}
		return math.MaxInt
	}
	all := prose.SingleErrors(err)
	for i, err := range all {
		if e, ok := errors.AsType[*setting.Error](err); ok {
			all[i] = s.located(e)
		}
	}
	slices.SortStableFunc(all, func(a, b error) int { return cmp.Compare(line(a), line(b)) })
	return errors.Join(all...)
}

// anyFlag matches the flags in a hint, firstFlag one that begins it.
var (
	anyFlag   = regexp.MustCompile(`--[a-z][a-z0-9-]*`)
	firstFlag = regexp.MustCompile(`^--[a-z][a-z0-9-]*`)
)

// located adds to e the places where the settings were given. It names settings as flags, or as keys if the wrong or
// missing one belongs in the file.
func (s *settings) located(e *setting.Error) error {
	v := given(s.flags, e.Setting)
	hint, spelled := e.Hint, func(name string) string { return "--" + name }
	if v.at != nil || v.shown == "" && s.file != "" {
		spelled = key
		hint = firstFlag.ReplaceAllString(hint, "$0:")
		hint = anyFlag.ReplaceAllStringFunc(hint, func(flag string) string { return key(flag[2:]) })
	}
	text := e.Text(func(name string) string { return cmp.Or(given(s.flags, name).shown, spelled(name)) })
	if hint == "" && e.Value == `""` && v.shown == variable(e.Setting) {
		hint = "unset it to use the default"
	}
	if v.at == nil {
		return usageError{errors.New(text), hint}
	}
	at := *v.at
	at.Message, at.Hint = text, hint
	return usageError{&at, ""}
}

// readFile reads the settings that are given only in the file, if there is one.
func (s *settings) readFile() error {
	if s.file == "" {
		return nil
	}
	text, err := strictyaml.ReadFile(s.file)
	if err != nil {
		return usageError{fmt.Errorf("reading settings: %w", err), ""}
	}
	doc := strictyaml.New(s.file, text)
	var fields []strictyaml.Field
	var lines []string
	for _, v := range settingsOf(s.flags) {
		name := key(v.row.Name)
		fields = append(fields, strictyaml.Field{Name: name, Secret: v.row.Secret, Read: func(n *yaml.Node) {
			if v.row.Secret {
				if err := setting.CheckSecret(s.file); err != nil {
					doc.Fail(n, "", "%v", err)
				}
			}
			if texts, ok := readTexts(doc, v.row, n); ok && v.shown == "" {
				v.texts, v.shown = texts, name
				v.at = &strictyaml.Error{File: s.file, Line: n.Line, Column: n.Column, Source: lines[n.Line-1]}
			}
		}})
	}
	source := strictyaml.Source{Name: s.file, Bytes: doc.Bytes, Fields: fields}
	lines = source.Lines(1 + bytes.Count(doc.Bytes, []byte("\n")))
	doc.Read("", "", fields)
	var errs []error
	for _, err := range prose.SingleErrors(doc.Err()) {
		errs = append(errs, usageError{err, ""})
	}
	return errors.Join(errs...)
}

// readTexts returns the texts of a setting in a file, which may be one value, a list, or a mapping.
func readTexts(doc *strictyaml.Document, row setting.Setting, n *yaml.Node) (texts []string, ok bool) {
	name := key(row.Name)
	wrong := func(at *yaml.Node, hint, format string, args ...any) ([]string, bool) {
		doc.Fail(at, hint, format, args...)
		return nil, false
	}
	text, single := strictyaml.Scalar(n)
	switch {
	case single:
		texts, err := elements(row.Value, text)
		if err != nil {
			return wrong(n, "", "%s: %v", name, err)
		}
		return texts, true
	case n.Kind == yaml.ScalarNode:
		return wrong(n, "remove the line to use the default", "%s has no value", name)
	case n.Kind == yaml.SequenceNode && isList(row.Value):
		for _, each := range n.Content {
			text, ok := strictyaml.Scalar(each)
			if !ok || text == "" {
				hint := ""
				if name == "rules" && strictyaml.IsMapping(each) {
					hint = "this looks like a rules file: give it with --rules"
				}
				return wrong(each, hint, "an element of %s is not a single value", name)
			}
			texts = append(texts, text)
		}
		return texts, true
	case n.Kind == yaml.MappingNode && row.Value.Type == "map":
		for _, pair := range doc.Pairs(n, name, "") {
			k, isKey := strictyaml.Scalar(pair[0])
			v, isValue := strictyaml.Scalar(pair[1])
			if !isKey || !isValue {
				return wrong(pair[1], "", "%s has more than one value for %s", name, k)
			}
			texts = append(texts, k+"="+v)
		}
		return texts, true
	case isList(row.Value):
		return wrong(n, "", "%s must be a value or a list of values", name)
	}
	return wrong(n, "", "%s must be a single value", name)
}
