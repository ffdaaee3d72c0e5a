package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// withSettingsOf are the commands that are set by variables and a file as well.
var withSettingsOf = map[string]func() *cobra.Command{"node": newNode, "pop": newPop, "shard": newShard}

// values returns three values of the type of a setting, none of them its default.
func values(t *testing.T, f *pflag.Flag) []string {
	t.Helper()
	of := map[string][]string{
		"string":   {"flag", "variable", "file"},
		"list":     {"flag-1,flag-2", "variable-1,variable-2", "file-1,file-2"},
		"duration": {"11s", "12s", "13s"},
		"int":      {"11", "12", "13"},
		"int64":    {"11", "12", "13"},
	}
	if f.Value.Type() == "bool" {
		// There are only two. What is not the default is given where it must win.
		if f.DefValue == "true" {
			return []string{"false", "true", "false"}
		}
		return []string{"true", "false", "true"}
	}
	v := of[f.Value.Type()]
	if v == nil {
		t.Fatalf("--%s is of type %s: say here how it is written", f.Name, f.Value.Type())
	}
	return v
}

// given sets a new command's flags by any of the three ways; what is empty is not given.
func given(t *testing.T, command func() *cobra.Command, name, flag, variableValue, file string) (value string) {
	t.Helper()
	cmd := command()
	flags := cmd.Flags()
	var args []string
	if flag != "" {
		args = append(args, fmt.Sprintf("--%s=%s", name, flag))
	}
	environment := map[string]string{}
	if variableValue != "" {
		environment[variable(name)] = variableValue
	}
	if file != "" {
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(name+": "+file+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		environment["EDGE_CONFIG"] = path
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	err := readSettings(flags, func(name string) (string, bool) {
		v, ok := environment[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return flags.Lookup(name).Value.String()
}

// Every flag of every such command is a setting: it may be given in three ways, a flag
// wins over a variable, and a variable over the file.
func TestEverySettingInThreeWays(t *testing.T) {
	for _, command := range slices.Sorted(maps.Keys(withSettingsOf)) {
		makeCommand := withSettingsOf[command]
		makeCommand().Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "config" {
				return
			}
			v := values(t, f)
			normal := func(text string) string { // as the value writes itself
				g := makeCommand().Flags().Lookup(f.Name)
				if err := g.Value.Set(text); err != nil {
					t.Fatal(err)
				}
				return g.Value.String()
			}
			for _, way := range []struct {
				name                 string
				flag, variable, file string
				want                 string
			}{
				{"by nothing", "", "", "", f.DefValue},
				{"by flag", v[0], "", "", v[0]},
				{"by variable", "", v[0], "", v[0]},
				{"by file", "", "", v[0], v[0]},
				{"by flag and variable", v[0], v[1], "", v[0]},
				{"by flag and file", v[0], "", v[1], v[0]},
				{"by variable and file", "", v[0], v[1], v[0]},
				{"by all", v[0], v[1], v[2], v[0]},
			} {
				got, want := given(t, makeCommand, f.Name, way.flag, way.variable, way.file), way.want
				if way.name != "by nothing" {
					want = normal(want)
				}
				if got != want && !(way.name == "by nothing" && want == "[]" && got == "") {
					t.Errorf("%s: --%s given %s is %q, want %q", command, f.Name, way.name, got, want)
				}
			}
		})
	}
}

// Lists are written with commas or in lines, and in the file as lists.
func TestLists(t *testing.T) {
	for _, row := range []struct {
		name, flag, variable, file string
		want                       string
	}{
		{"one", "a.yaml", "", "", "a.yaml"},
		{"with commas", "a.yaml,b.yaml", "", "", "a.yaml,b.yaml"},
		{"with commas and spaces", "", " a.yaml , b.yaml ", "", "a.yaml,b.yaml"},
		{"in lines", "", "a.yaml\nb.yaml\n", "", "a.yaml,b.yaml"},
		{"in the file with commas", "", "", "a.yaml, b.yaml", "a.yaml,b.yaml"},
		{"in the file in brackets", "", "", "[a.yaml, b.yaml]", "a.yaml,b.yaml"},
		{"in the file in lines", "", "", "\n  - a.yaml\n  - b.yaml", "a.yaml,b.yaml"},
		{"none in the file", "", "", "[]", ""},
		{"a flag replaces what the file has", "c.yaml", "", "[a.yaml, b.yaml]", "c.yaml"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := given(t, newNode, "rules", row.flag, row.variable, row.file); got != row.want {
				t.Errorf("rules = %q, want %q", got, row.want)
			}
		})
	}
}

// A list in a file may hold what has a comma, and be given twice.
func TestListOfFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte("rules: &list ['a,b.yaml', c.yaml]\nshard: *list\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var f nodeFlags
	flags := pflag.NewFlagSet("node", pflag.ContinueOnError)
	f.register(flags)
	if err := readSettingsFile(flags, path, map[string]bool{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"a,b.yaml", "c.yaml"}
	if diff := cmp.Diff([][]string{want, want}, [][]string{f.rules, f.shards}); diff != "" {
		t.Error(diff)
	}
}

// A flag may be repeated.
func TestRepeatedFlag(t *testing.T) {
	var f nodeFlags
	flags := pflag.NewFlagSet("node", pflag.ContinueOnError)
	f.register(flags)
	if err := flags.Parse([]string{"--rules=a.yaml,b.yaml", "--rules", "c.yaml"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.yaml", "b.yaml", "c.yaml"}, f.rules); diff != "" {
		t.Error(diff)
	}
}

// The origins of hosts are a mapping in the file, or the list that the flag is.
func TestHostOriginInFile(t *testing.T) {
	want := map[string]string{"a.example.com": "http://127.0.0.1:1", "b.example.com": "https://b.internal"}
	for _, row := range []struct{ name, text string }{
		{"mapping", "host-origin:\n  a.example.com: http://127.0.0.1:1\n  b.example.com: https://b.internal\n"},
		{"list", "host-origin:\n  - a.example.com=http://127.0.0.1:1\n  - b.example.com=https://b.internal\n"},
		{"commas", "host-origin: a.example.com=http://127.0.0.1:1, b.example.com=https://b.internal\n"},
		{"alias", "origin: &a http://127.0.0.1:1\nhost-origin: {a.example.com: *a, b.example.com: https://b.internal}\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "settings.yaml")
			if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var f nodeFlags
			var o ownFlags
			flags := pflag.NewFlagSet("node", pflag.ContinueOnError)
			o.register(flags)
			f.register(flags)
			if err := readSettingsFile(flags, path, map[string]bool{}); err != nil {
				t.Fatal(err)
			}
			options, err := f.options(io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, options.HostOrigins); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// No setting has a variable that Kubernetes might set for a service.
func TestNoSettingIsOfAService(t *testing.T) {
	for name, command := range withSettingsOf {
		command().Flags().VisitAll(func(f *pflag.Flag) {
			if ofServices.MatchString(variable(f.Name)) {
				t.Errorf("%s: %s may be set by Kubernetes for a service", name, variable(f.Name))
			}
		})
	}
	for _, name := range []string{"EDGE_PORT", "EDGE_PORT_80_TCP", "EDGE_PORT_80_TCP_ADDR", "EDGE_SERVICE_HOST", "EDGE_SERVICE_PORT",
		"EDGE_SERVICE_PORT_HTTP", "EDGE_SHARD_SERVICE_HOST", "EDGE_LISTEN_PORT_80_TCP_PROTO"} {
		if !ofServices.MatchString(name) {
			t.Errorf("%s is not taken for a variable of a service", name)
		}
	}
}

// A variable is named as its flag.
func TestVariable(t *testing.T) {
	if got := variable("tls-cert"); got != "EDGE_TLS_CERT" {
		t.Errorf("variable(tls-cert) = %s, want EDGE_TLS_CERT", got)
	}
}

// Each usage text is a phrase that fits a line.
func TestFlagUsage(t *testing.T) {
	for _, cmd := range newRoot(io.Discard, io.Discard).Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" || strings.HasSuffix(f.Usage, ".") || len(f.Usage) > 140 {
				t.Errorf("%s --%s: usage %q", cmd.Name(), f.Name, f.Usage)
			}
		})
	}
}
