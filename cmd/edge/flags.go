package main

// Every flag is a row of a table; see [setting.Setting]. The command line collects the texts of flags. They are parsed
// once all are known, so that all errors are reported together.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/pop/setting"
)

// A flagValue is a setting, and how it was given: by a flag, by a variable, or in a file.
type flagValue struct {
	row   setting.Setting
	texts []string
	shown string            // its name as it was spelled; empty if it was not given
	at    *strictyaml.Error // its place in the file, or nil
	err   error             // what is wrong with texts, if they cannot be parsed
}

func (v *flagValue) Type() string { return v.row.Value.Type }

func (v *flagValue) String() string { return v.row.Value.Default }

// Set adds a text to the setting. It never fails: all errors are reported together.
func (v *flagValue) Set(text string) error {
	texts, err := elements(v.row.Value, text)
	if !isList(v.row.Value) && v.row.Value.Type != repeated {
		v.texts, v.err = nil, nil // the last one wins
	}
	v.shown, v.texts, v.err = "--"+v.row.Name, append(v.texts, texts...), cmp.Or(v.err, err)
	return nil
}

// repeated is the type of a flag that may be repeated. Commas do not separate its values.
const repeated = "repeated"

// repeatable returns v as a list that takes one element from each flag.
func repeatable(v setting.Value) setting.Value {
	v.Type = repeated
	return v
}

// define adds flags to set.
func define(set *pflag.FlagSet, rows []setting.Setting) {
	set.SortFlags = false
	for _, row := range rows {
		f := set.VarPF(&flagValue{row: row}, row.Name, row.Short, row.Help)
		if row.Value.Type == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// readFlags sets the fields of the flags of cmd. It returns all errors, joined.
func readFlags(cmd *cobra.Command, _ []string) error {
	s := &settings{flags: cmd.Flags()}
	var rows []setting.Setting
	for _, v := range settingsOf(s.flags) {
		rows = append(rows, v.row)
	}
	return s.explain(s.set(func() error {
		return setting.CheckTogether(rows, func(row setting.Setting) bool { return isSet(s.flags, row.Name) })
	}))
}

// settingsOf returns the settings among flags.
func settingsOf(flags *pflag.FlagSet) (all []*flagValue) {
	flags.VisitAll(func(f *pflag.Flag) {
		if v, ok := f.Value.(*flagValue); ok {
			all = append(all, v)
		}
	})
	return all
}

// given returns the setting with a name, or the zero value if flags have none.
func given(flags *pflag.FlagSet, name string) flagValue {
	if f := flags.Lookup(name); f != nil {
		if v, ok := f.Value.(*flagValue); ok {
			return *v
		}
	}
	return flagValue{}
}

// isSet reports whether a flag is given, other than as --NAME=false.
func isSet(flags *pflag.FlagSet, name string) bool {
	v := given(flags, name)
	return v.shown != "" && !slices.Equal(v.texts, []string{"false"})
}

// oneOf returns a Value that is one of words, by default the first one.
func oneOf(to *string, words ...string) setting.Value {
	return setting.Text(to, words[0], func(text string) error {
		if slices.Contains(words, text) {
			return nil
		}
		return complaint.WithHint(errors.New("must be "+prose.EnumerateAll(words, "or")), prose.Meant(text, words))
	}).Choices(words...)
}

// complete registers how shells complete the values of flags and the arguments of cmd and its subcommands. Files are
// offered only where a file is expected.
func complete(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && !strings.HasSuffix(cmd.Use, "FILE…") && !strings.HasSuffix(cmd.Use, "LOG…") {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		v, ok := f.Value.(*flagValue)
		if !ok {
			return
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		switch placeholder, _ := pflag.UnquoteUsage(f); placeholder {
		case "file", "files", "logs", "mix":
			directive = cobra.ShellCompDirectiveDefault
		case "directory":
			directive = cobra.ShellCompDirectiveFilterDirs
		}
		// It fails only for a flag that has a completion.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(v.row.Value.Words, directive))
	})
	for _, c := range cmd.Commands() {
		complete(c)
	}
}

// fail returns an error about the named flag.
func fail(name, hint, format string, args ...any) error {
	return usageError{fmt.Errorf("--%s: %s", name, fmt.Sprintf(format, args...)), hint}
}

// asUsage returns err, if not nil, as a mistake in the flags of edge replay.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err, "see 'edge replay --help'"}
}

// usage writes how to use cmd. Its flags are listed in the groups of their settings.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nAvailable Commands:\n")
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(&b, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
		}
	}
	title, group := "Flags", new(pflag.FlagSet)
	end := func() {
		if group.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", title, group.FlagUsagesWrapped(100))
		}
	}
	add := func(f *pflag.Flag) {
		if f.Name == "help" {
			return // it would be in the last group
		}
		if v, ok := f.Value.(*flagValue); ok && v.row.Group != "" {
			end()
			title, group = "Flags for "+v.row.Group, new(pflag.FlagSet)
		}
		group.AddFlag(f)
	}
	cmd.InheritedFlags().VisitAll(add)
	cmd.LocalFlags().VisitAll(add)
	end()
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}
