package main

import (
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
	rows  []setting.Setting
	flags *pflag.FlagSet
	file  string // may be empty
	given map[string]given
}

// given holds the texts of a setting and where they were given.
type given struct {
	texts []string
	shown string            // the setting as it is spelled there
	at    *strictyaml.Error // its place in the file, or nil
}

// withSettings adds the settings of rows to cmd. Once they are set, cmd calls check and, if it returns
// no error, run.
func withSettings(cmd *cobra.Command, rows []setting.Setting, check func() error, run func(cmd *cobra.Command) error) *cobra.Command {
	s := &settings{rows: rows, flags: cmd.Flags(), given: map[string]given{}}
	s.flags.String("config", "", "YAML `file` whose keys are these settings")
	define(s.flags, rows)
	cmd.Args = noArgs
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		s.file = os.Getenv(variable("config"))
		if s.flags.Changed("config") {
			s.file, _ = s.flags.GetString("config")
		}
		var err error
		if s.file != "" {
			err = s.readFile(s.file)
		}
		err = errors.Join(err, s.read(true))
		if err != nil {
			check = func() error { return nil }
		}
		return byLine(errors.Join(err, s.set(check)))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var errs []error
		for _, err := range prose.SingleErrors(run(cmd)) {
			errs = append(errs, s.explain(err))
		}
		return byLine(errors.Join(errs...))
	}
	cmd.Long += `

Every setting is a flag, a variable EDGE_… (--log-level is EDGE_LOG_LEVEL) and a key of the
file that --config or EDGE_CONFIG names (log_level: info). Flags override variables, and
variables override the file. Elements of lists are separated by commas; the file may also
have YAML lists.`
	return cmd
}

// byLine returns the errors in err: first those about the file, in the order of its lines, then the others.
func byLine(err error) error {
	line := func(err error) int {
		if place, ok := errors.AsType[*strictyaml.Error](err); ok {
			return place.Line
		}
		return math.MaxInt
	}
	all := prose.SingleErrors(err)
	slices.SortStableFunc(all, func(a, b error) int { return cmp.Compare(line(a), line(b)) })
	return errors.Join(all...)
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

// read fills s.given from flags and, if there are variables, from those. It returns all errors, joined.
func (s *settings) read(variables bool) error {
	var errs []error
	for _, row := range s.rows {
		var g given
		var err error
		f := s.flags.Lookup(row.Name)
		text, ok := os.LookupEnv(variable(row.Name))
		switch {
		case f.Changed:
			v := f.Value.(*flagValue)
			g.texts, g.shown, err = v.texts, "--"+row.Name, v.err
		case ok && variables:
			g.shown = variable(row.Name)
			g.texts, err = elements(row.Value, text)
		default:
			continue
		}
		if err != nil {
			errs = append(errs, usageError{fmt.Errorf("%s: %w", g.shown, err), ""})
		}
		s.given[row.Name] = g
	}
	return errors.Join(errs...)
}

// set sets the given values or defaults, and checks them. It returns all errors, joined.
func (s *settings) set(check func() error) error {
	var errs []error
	wrong := map[string]bool{}
	for _, row := range s.rows {
		g, ok := s.given[row.Name]
		if !ok && row.Value.Default != "" {
			g.texts = []string{row.Value.Default}
		}
		if !ok && g.texts == nil {
			continue
		}
		if err := row.Set(g.texts); err != nil {
			wrong[row.Name] = true
			errs = append(errs, s.explain(err))
		}
	}
	for _, err := range prose.SingleErrors(check()) {
		// Errors about a value that could not be parsed are consequences.
		if e, ok := errors.AsType[*setting.Error](err); !ok || !wrong[e.Setting] && !wrong[e.Other] {
			errs = append(errs, s.explain(err))
		}
	}
	return errors.Join(errs...)
}

// anyFlag matches the flags in a hint, firstFlag one that begins it.
var (
	anyFlag   = regexp.MustCompile(`--[a-z][a-z0-9-]*`)
	firstFlag = regexp.MustCompile(`^--[a-z][a-z0-9-]*`)
)

// explain adds to a setting.Error the places where the settings were given. It names settings as flags, or as keys if
// the one that is wrong or missing belongs in the file.
func (s *settings) explain(err error) error {
	e, ok := errors.AsType[*setting.Error](err)
	if !ok {
		return err
	}
	g, isGiven := s.given[e.Setting]
	inFile := g.at != nil || !isGiven && s.file != ""
	hint, spelled := e.Hint, func(name string) string { return "--" + name }
	if inFile {
		spelled = key
		hint = firstFlag.ReplaceAllString(hint, "$0:")
		hint = anyFlag.ReplaceAllStringFunc(hint, func(flag string) string { return key(flag[2:]) })
	}
	text := e.Text(func(name string) string { return cmp.Or(s.given[name].shown, spelled(name)) })
	if hint == "" && e.Value == `""` && g.shown == variable(e.Setting) {
		hint = "unset it to use the default"
	}
	if g.at == nil {
		return usageError{errors.New(text), hint}
	}
	at := *g.at
	at.Message, at.Hint = text, hint
	return usageError{&at, ""}
}

// secretLine matches the beginning of a secret in a file, keyLine that of any setting.
var (
	secretLine = regexp.MustCompile(`(^|[{,])\s*["']?(secret|gossip_key)["']?\s*:`)
	keyLine    = regexp.MustCompile(`^["'\w]`)
)

// readFile reads the settings of a file. Lines with secrets are not shown.
func (s *settings) readFile(file string) error {
	text, err := strictyaml.ReadFile(file)
	if err != nil {
		return usageError{fmt.Errorf("reading settings: %w", err), ""}
	}
	source, hidden := strings.Split(string(text), "\n"), false
	for i, line := range source {
		hidden = secretLine.MatchString(line) || hidden && !keyLine.MatchString(line)
		if hidden {
			source[i] = ""
		}
	}
	doc := strictyaml.New(file, text)
	var fields []strictyaml.Field
	for _, row := range s.rows {
		fields = append(fields, strictyaml.Field{Name: key(row.Name), Read: func(n *yaml.Node) {
			if row.Secret {
				if err := setting.CheckSecret(file); err != nil {
					doc.Fail(n, "", "%v", err)
				}
			}
			if texts, ok := readTexts(doc, row, n); ok {
				s.given[row.Name] = given{texts, key(row.Name), &strictyaml.Error{File: file, Line: n.Line, Column: n.Column, Source: source[n.Line-1]}}
			}
		}})
	}
	doc.Read("", "", fields)
	var errs []error
	for _, err := range prose.SingleErrors(doc.Err()) {
		if e, ok := err.(*strictyaml.Error); ok && e.Line > 0 {
			e.Source = source[e.Line-1]
		}
		errs = append(errs, usageError{err, ""})
	}
	return errors.Join(errs...)
}

// readTexts returns the texts of a setting in a file, which may be one value, a list, or a mapping.
func readTexts(doc *strictyaml.Document, row setting.Setting, n *yaml.Node) (texts []string, ok bool) {
	name := key(row.Name)
	text, single := strictyaml.Scalar(n)
	switch {
	case single:
		texts, err := elements(row.Value, text)
		if err != nil {
			doc.Fail(n, "", "%s: %v", name, err)
		}
		return texts, err == nil
	case n.Kind == yaml.ScalarNode:
		doc.Fail(n, "remove the line to use the default", "%s has no value", name)
		return nil, false
	case n.Kind == yaml.SequenceNode && isList(row.Value):
		for _, each := range n.Content {
			text, ok := strictyaml.Scalar(each)
			if !ok || text == "" {
				hint := ""
				if name == "rules" && strictyaml.IsMapping(each) {
					hint = "this looks like a rules file: give it with --rules"
				}
				doc.Fail(each, hint, "an element of %s is not a single value", name)
				return nil, false
			}
			texts = append(texts, text)
		}
		return texts, true
	case n.Kind == yaml.MappingNode && row.Value.Type == "map":
		for _, pair := range doc.Pairs(n, name, "") {
			k, isKey := strictyaml.Scalar(pair[0])
			v, isValue := strictyaml.Scalar(pair[1])
			if !isKey || !isValue {
				doc.Fail(pair[1], "", "%s has more than one value for %s", name, k)
				return nil, false
			}
			texts = append(texts, k+"="+v)
		}
		return texts, true
	case isList(row.Value):
		doc.Fail(n, "", "%s must be a value or a list of values", name)
	default:
		doc.Fail(n, "", "%s must be a single value", name)
	}
	return nil, false
}
