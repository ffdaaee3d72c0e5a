package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/pop/rule"
)

// A command's settings are its flags. Each may also be given by a variable EDGE_NAME, or
// by a key of the YAML file that --config names, with the same name. A flag wins over a
// variable, a variable over the file.

// withSettings lets cmd be set by variables and a file too.
func withSettings(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("config", "", "YAML `file` whose keys are these settings")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, warning := range strayVariables(cmd, os.Environ()) {
			report(cmd.ErrOrStderr(), warning)
		}
		return readSettings(cmd.Flags(), os.LookupEnv)
	}
	cmd.Long += `

Every setting is a flag, a variable EDGE_… (--metrics-listen is EDGE_METRICS_LISTEN) and
a key of the file that --config or EDGE_CONFIG names (metrics-listen: 127.0.0.1:9180).
A flag wins over a variable, a variable over the file. Lists are written with commas,
in the file also as lists.`
	return cmd
}

// readSettings sets the flags that the command line does not.
func readSettings(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	given := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(f.Name)
		value, ok := lookup(name)
		if !ok || given[f.Name] || !isSetting(f) {
			return
		}
		given[f.Name] = true
		setPlace(flags, f, name)
		if err := flags.Set(f.Name, value); err != nil {
			message, hint := wrongValue(f, value, cause(err))
			if value == "" {
				hint = "unset it to have the default"
			}
			errs = append(errs, usageError{fmt.Errorf("%s: %s", name, message), hint})
		}
	})
	file, _ := flags.GetString("config")
	if !flags.Changed("config") {
		file, _ = lookup(variable("config"))
	}
	if file != "" {
		errs = append(errs, readSettingsFile(flags, file, given))
	}
	return errors.Join(errs...)
}

// variable returns the name of the variable of a setting.
func variable(name string) string {
	return "EDGE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// isSetting reports whether f may be given outside of the command line.
func isSetting(f *pflag.Flag) bool { return f.Name != "config" && f.Name != "help" }

// ofServices matches the variables that Kubernetes gives every container of a namespace
// with a service whose name begins with edge.
var ofServices = regexp.MustCompile(`^EDGE_(.+_)?(PORT|SERVICE_HOST|SERVICE_PORT)(_|$)`)

// strayVariables returns what to say of variables that look like misspelled settings.
// That is no error: others may use the prefix as well.
func strayVariables(cmd *cobra.Command, environ []string) (warnings []error) {
	known, mine := map[string]bool{variable("config"): true}, []string{variable("config")}
	for _, c := range cmd.Root().Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			known[variable(f.Name)] = true
			if c == cmd {
				mine = append(mine, variable(f.Name))
			}
		})
	}
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "EDGE_") || known[name] || ofServices.MatchString(name) {
			continue
		}
		// Compared without what all have in common, and would make alike.
		var names []string
		for _, m := range mine {
			names = append(names, strings.ToLower(strings.TrimPrefix(m, "EDGE_")))
		}
		hint := meant(strings.TrimPrefix(name, "EDGE_"), names)
		if hint == "" {
			continue
		}
		guess := strings.TrimSuffix(strings.TrimPrefix(hint, "did you mean "), "?")
		warnings = append(warnings, usageError{fmt.Errorf("%s is no setting, and has no effect", name),
			fmt.Sprintf("did you mean EDGE_%s?", strings.ToUpper(guess))})
	}
	return warnings
}

// placeKey is the annotation of a flag that says where its value was given.
const placeKey = "edge_place"

// setPlace notes where the value of f comes from, if not from the command line.
func setPlace(flags *pflag.FlagSet, f *pflag.Flag, place string) {
	_ = flags.SetAnnotation(f.Name, placeKey, []string{place}) // f is one of flags
}

// place returns where the value of the setting called name was given: --listen,
// EDGE_LISTEN or node.yaml:3:9: listen.
func place(flags *pflag.FlagSet, name string) string {
	if at := flags.Lookup(name).Annotations[placeKey]; len(at) > 0 {
		return at[0]
	}
	return "--" + name
}

// cause removes what pflag says before what is wrong.
func cause(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return invalid.Unwrap()
	}
	return err
}

// wrongValue says what is wrong with text as a value of f, and what to write.
func wrongValue(f *pflag.Flag, text string, err error) (message, hint string) {
	switch f.Value.Type() {
	case "duration":
		return fmt.Sprintf("%q is no duration", text), "write it with its unit, as in 300ms, 5s or 1h30m"
	case "int", "int64":
		return fmt.Sprintf("%q is no whole number, or too great", text), ""
	case "float64":
		return fmt.Sprintf("%q is no number", text), ""
	case "bool":
		return fmt.Sprintf("%q is neither true nor false", text), ""
	}
	return err.Error(), ""
}

// A list is the value of a flag with several values: separated by commas or line ends, or
// in flags of their own.
type list struct {
	values *[]string
	set    bool
}

// listVar defines a flag with several values.
func listVar(flags *pflag.FlagSet, values *[]string, name, usage string) {
	flags.Var(&list{values: values}, name, usage)
}

var errEmptyElement = errors.New("an element of the list is empty")

// Set replaces the default by the values of text, and adds to what was set before.
func (l *list) Set(text string) error {
	if !l.set {
		*l.values = nil
	}
	l.set = true
	for line := range strings.Lines(strings.TrimSpace(text)) {
		for each := range strings.SplitSeq(line, ",") {
			if each = strings.TrimSpace(each); each == "" {
				return errEmptyElement
			}
			*l.values = append(*l.values, each)
		}
	}
	return nil
}

func (l *list) Type() string   { return "list" }
func (l *list) String() string { return strings.Join(*l.values, ",") }

// Append, Replace and GetSlice make it a pflag.SliceValue.
func (l *list) Append(value string) error {
	*l.values = append(*l.values, value)
	return nil
}

func (l *list) Replace(values []string) error {
	*l.values, l.set = values, true
	return nil
}

func (l *list) GetSlice() []string { return *l.values }

// A settingsFile is a file that sets flags.
type settingsFile struct {
	name  string
	lines []string
	flags *pflag.FlagSet
}

// aSecret matches a line that must not be shown.
var aSecret = regexp.MustCompile(`^\s*["']?(secret|gossip-key)["']?\s*:`)

// fail returns an error at a place of the file.
func (s *settingsFile) fail(line, column int, hint, format string, args ...any) error {
	e := &rule.Error{File: s.name, Line: max(line, 1), Column: max(column, 1), Message: fmt.Sprintf(format, args...), Hint: hint}
	if e.Line <= len(s.lines) && !aSecret.MatchString(s.lines[e.Line-1]) {
		e.Source = s.lines[e.Line-1]
	}
	return usageError{e, ""}
}

// readSettingsFile sets the flags that are not given from the keys of a file.
func readSettingsFile(flags *pflag.FlagSet, file string, given map[string]bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return usageError{fmt.Errorf("reading settings: %w", err), ""}
	}
	s := &settingsFile{file, strings.Split(string(text), "\n"), flags}
	var doc, second yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err == nil {
		err = loader.Load(&doc)
	}
	var syntax *yaml.LoadError
	switch {
	case err == io.EOF:
		return nil // nothing is set
	case errors.As(err, &syntax):
		return s.fail(syntax.Mark.Line, syntax.Mark.Column, "", "not YAML: %s", syntax.Message)
	case err != nil:
		return usageError{fmt.Errorf("%s: %w", file, err), ""}
	case loader.Load(&second) != io.EOF:
		return s.fail(second.Line, second.Column, "write one document", "a second document begins here")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return s.fail(root.Line, root.Column, "write one setting in a line, as in listen: :8080", "settings are keys with values")
	}
	var errs []error
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		f := flags.Lookup(key.Value)
		switch {
		case key.Kind != yaml.ScalarNode:
			errs = append(errs, s.fail(key.Line, key.Column, "", "the name of a setting is one word"))
		case f == nil || !isSetting(f):
			errs = append(errs, s.fail(key.Line, key.Column, cmp.Or(meant(key.Value, settingNames(flags)), "settings are called as the flags are; see --help"), "unknown setting %q", key.Value))
		case seen[key.Value] > 0:
			errs = append(errs, s.fail(key.Line, key.Column, "", "%q is set twice, first in line %d", key.Value, seen[key.Value]))
		default:
			seen[key.Value] = key.Line
			errs = append(errs, s.set(f, value, given[key.Value]))
		}
	}
	return errors.Join(errs...)
}

func settingNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if isSetting(f) {
			names = append(names, f.Name)
		}
	})
	return names
}

// set sets f: to a scalar, a list of scalars, or a mapping as a list of key=value. What is
// given already is only checked for its form.
func (s *settingsFile) set(f *pflag.Flag, n *yaml.Node, given bool) error {
	at, n := n, resolved(n)
	fail := func(at *yaml.Node, hint, format string, args ...any) error {
		if hint == "" {
			_, hint = pflag.UnquoteUsage(f)
		}
		return s.fail(at.Line, at.Column, hint, "%s: "+format, append([]any{f.Name}, args...)...)
	}
	list, isList := f.Value.(pflag.SliceValue)
	isMap := f.Name == "host-origin"
	var values []string
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return fail(at, "remove the line to have the default", "no value is given")
	case n.Kind == yaml.ScalarNode:
		if given {
			return nil
		}
		if err := s.flags.Set(f.Name, n.Value); err != nil {
			message, hint := wrongValue(f, n.Value, cause(err))
			return fail(at, hint, "%s", message)
		}
		s.place(f, at)
		return nil
	case n.Kind == yaml.SequenceNode && isList:
		for _, each := range n.Content {
			value, ok := textOf(each)
			if !ok {
				return fail(each, "", "an element of the list is no plain value")
			}
			values = append(values, value)
		}
	case n.Kind == yaml.MappingNode && isMap:
		for i := 0; i+1 < len(n.Content); i += 2 {
			host, isHost := textOf(n.Content[i])
			url, isURL := textOf(n.Content[i+1])
			if !isHost || !isURL {
				return fail(n.Content[i+1], "", "a host has one URL")
			}
			values = append(values, host+"="+url)
		}
	case isMap:
		return fail(at, "", "neither HOST: URL lines nor a list of HOST=URL")
	case isList:
		return fail(at, "", "neither a value nor a list of values")
	default:
		return fail(at, "", "not one value")
	}
	if given {
		return nil
	}
	if err := list.Replace(slices.Clip(values)); err != nil {
		return err
	}
	f.Changed = true
	s.place(f, at)
	return nil
}

// place notes that f was set at n.
func (s *settingsFile) place(f *pflag.Flag, n *yaml.Node) {
	setPlace(s.flags, f, fmt.Sprintf("%s:%d:%d: %s", s.name, n.Line, cmp.Or(n.Column, 1), f.Name))
}

// resolved returns what n stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// textOf returns the text of a scalar that has one.
func textOf(n *yaml.Node) (text string, ok bool) {
	n = resolved(n)
	return n.Value, n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && n.Value != ""
}
