package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/golden"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
)

// A settable is a command that has settings.
type settable struct {
	// make returns the command, which passes its options to run instead of running.
	make func(run func(options any) error) *cobra.Command

	// base are settings that suffice for the command to run.
	base map[string]string
}

var settables = map[string]settable{
	"node": {
		func(run func(any) error) *cobra.Command {
			return newNode(func(_ context.Context, o pop.Options) error { return run(o) })
		},
		map[string]string{
			"name": "n1", "rules": "rules.yaml", "origin": "http://127.0.0.1:1", "secret": "0123456789abcdef", "shard": "127.0.0.1:2",
			"trusted-proxy": "127.0.0.1", "tls-listen": "127.0.0.1:3", "tls-cert": "cert.pem", "tls-key": "key.pem",
			"check-listen": "127.0.0.1:7", "gossip-listen": "127.0.0.1:4", "gossip-advertise": "127.0.0.1:5", "join": "127.0.0.1:6",
		},
	},
	"pop": {
		func(run func(any) error) *cobra.Command {
			return newPop(func(_ context.Context, _ io.Writer, p pop.LocalOptions, demo demonstration) error {
				return run(struct {
					pop.LocalOptions
					Demo demonstration
				}{p, demo})
			})
		},
		map[string]string{"secret": "0123456789abcdef"},
	},
	"shard": {
		func(run func(any) error) *cobra.Command {
			return newShard(func(_ context.Context, _ io.Writer, listen string, o shard.Options) error {
				return run(struct {
					Listen  string
					Options shard.Options
				}{listen, o})
			})
		},
		nil,
	},
}

// others are values other than the default for settings that do not accept any text, list or number.
var others = map[string]string{
	"check-listen": "127.0.0.1:1122", "check-deny-status": "403", "decision-log-share": "0.5", "decision-log-size": "1048577", "spop-listen": "127.0.0.1:1123", "socket-group": "65533",
	"listen": "127.0.0.1:1111", "tls-listen": "127.0.0.1:1112", "metrics-listen": "127.0.0.1:1113", "admin-listen": "127.0.0.1:1124", "shard-listen": "127.0.0.1:1114",
	"gossip-listen": "127.0.0.2:1115", "gossip-advertise": "127.0.0.1:1116", "join": "127.0.0.1:1117,127.0.0.1:1118",
	"gossip-key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "secret": "another secret of the PoP", "shard": "127.0.0.1:1119",
	"origin": "http://127.0.0.1:1120", "acme-origin": "http://127.0.0.1:1125", "host-origin": "a.example=http://127.0.0.1:1121", "trusted-proxy": "10.0.0.0/8,192.0.2.1", "nat64-prefix": "64:ff9b:1::/48",
	"ratelimit-headers": "both", "log-format": "json", "log-level": "debug", "demo": "11s", "memory": "11", "drain-timeout": "1d",
}

// without are settings of the base that contradict another setting.
var without = map[string][]string{"secret-file": {"secret", "shard", "gossip-listen", "gossip-advertise", "join"}, "shard-listen": {"shard"}}

// fields are the fields of settings whose field has another name.
var fields = map[string]string{
	"rules": "RuleFiles", "admin-pprof": "AdminPProf", "host-origin": "HostOrigins", "origin-timeout": "OriginOptions.Timeout", "origin-connect-timeout": "OriginOptions.ConnectTimeout",
	"shard": "Shards", "trusted-proxy": "TrustedProxies", "ipv4-prefix": "Client.IPv4", "ipv6-prefix": "Client.IPv6", "nat64-prefix": "Client.NAT64", "ratelimit-headers": "Headers",
	"http2-streams": "Limits.MaxStreams", "http2-overhead": "Limits.MaxOverhead", "shard-timeout": "ShardOptions.Timeout", "gossip-key": "Gossip.Keys", "demo": "Demo.length",
	"log-format": "Logger", "log-level": "Logger", "memory": "Options.MaxBytes", "max-connections": "Options.MaxConns",
}

// run runs the command with flags, variables and a file, and returns the options that it would run with.
func (s settable) run(t *testing.T, flags []string, variables map[string]string, file string) (any, error) {
	t.Helper()
	for name, value := range variables {
		t.Setenv(variable(name), value)
	}
	var options any
	cmd := s.make(func(o any) error {
		options = o
		return nil
	})
	if file != "" {
		path := filepath.Join(t.TempDir(), "settings.yaml")
		write(t, path, file)
		flags = append(flags, "--config="+path)
	}
	cmd.SetArgs(append([]string{}, flags...)) // not nil
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	if err == nil && options == nil {
		err = errors.New("the command did not call run")
	}
	return options, err
}

// flagsOf returns settings as flags.
func flagsOf(settings map[string]string) (flags []string) {
	for name, value := range settings {
		flags = append(flags, fmt.Sprintf("--%s=%s", name, value))
	}
	return flags
}

// leaves returns the fields of v by path.
func leaves(v reflect.Value, path string, into map[string]string) map[string]string {
	if v.Kind() == reflect.Struct && !strings.HasPrefix(v.Type().String(), "netip.") {
		for i := range v.NumField() {
			leaves(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), into)
		}
		return into
	}
	switch {
	case v.Type() == reflect.TypeFor[*slog.Logger]():
		logger := v.Interface().(*slog.Logger)
		level := slog.LevelDebug
		for !logger.Enabled(context.Background(), level) {
			level++
		}
		into[path] = fmt.Sprintf("%T from %v", logger.Handler(), level)
	case v.Type() == reflect.TypeFor[*[]netip.Prefix]() && !v.IsNil():
		into[path] = fmt.Sprint(v.Elem())
	case v.Kind() != reflect.Func && v.Kind() != reflect.Pointer: // these are not settings
		into[path] = fmt.Sprint(v)
	}
	return into
}

// other returns a value of a setting other than the default.
func other(f *pflag.Flag) string {
	if value := others[f.Name]; value != "" {
		return value
	}
	switch f.Value.Type() {
	case "text", "list":
		return "other"
	case "bool":
		return map[string]string{"true": "false", "false": "true"}[f.DefValue]
	case "duration":
		return "11s"
	}
	return "11" // in any unit
}

// arrives checks that a setting, given as a flag, as a variable and in a file, sets the field with its name and
// no other. It returns what is wrong.
func (s settable) arrives(t *testing.T, f *pflag.Flag) (wrong []string) {
	t.Helper()
	base := maps.Clone(s.base)
	for _, name := range without[f.Name] {
		delete(base, name)
	}
	if strings.HasSuffix(f.Name, "-file") {
		others[f.Name] = filepath.Join(t.TempDir(), "file")
		write(t, others[f.Name], "0123456789abcdef0123456789abcdef\n")
	}
	run := func(flags, variables map[string]string, file string) map[string]string {
		all := maps.Clone(base)
		if all == nil {
			all = map[string]string{}
		}
		for name := range variables {
			delete(all, name)
		}
		if file != "" {
			delete(all, f.Name)
		}
		maps.Copy(all, flags)
		options, err := s.run(t, flagsOf(all), variables, file)
		if err != nil {
			wrong = append(wrong, err.Error())
			return nil
		}
		return leaves(reflect.ValueOf(options), "", map[string]string{})
	}
	before, value := run(nil, nil, ""), other(f)
	for way, after := range map[string]map[string]string{
		"flag":     run(map[string]string{f.Name: value}, nil, ""),
		"file":     run(nil, nil, fmt.Sprintf("%s: %q\n", key(f.Name), value)),
		"variable": run(nil, map[string]string{f.Name: value}, ""), // last, because it stays in the environment
	} {
		var changed []string
		for path := range after {
			if after[path] != before[path] {
				changed = append(changed, path)
			}
		}
		want := fields[f.Name]
		if len(changed) != 1 || strings.TrimPrefix(changed[0], "LocalOptions.Node.") != want && !sameName(changed[0], f.Name) {
			wrong = append(wrong, fmt.Sprintf("by %s %s=%s sets %q, want one field %s", way, f.Name, value, changed, want))
			continue
		}
		if got := after[changed[0]]; fields[f.Name] == "" && others[f.Name] == "" && strings.Trim(got, "[]") != value {
			wrong = append(wrong, fmt.Sprintf("by %s %s=%s sets %s to %s", way, f.Name, value, changed[0], got))
		}
	}
	return wrong
}

// sameName reports whether the last part of a field's path has the name of a setting.
func sameName(path, setting string) bool {
	squeeze := func(s string) string { return strings.ToLower(strings.NewReplacer("-", "", ".", "").Replace(s)) }
	return strings.HasSuffix(squeeze(path), squeeze(setting))
}

// Every setting of every command reaches the field that the command reads, however it is given.
func TestEverySettingArrives(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"rules.yaml", "other"} {
		write(t, file, "rules: []\n")
	}
	for _, name := range slices.Sorted(maps.Keys(settables)) {
		s := settables[name]
		s.make(nil).Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "config" || f.Hidden {
				return
			}
			t.Run(name+"/"+f.Name, func(t *testing.T) {
				for _, wrong := range s.arrives(t, f) {
					t.Error(wrong)
				}
			})
		})
	}
}

// Flags override variables, variables override the file, and the file overrides the defaults. Lists have commas or
// lines, and in the file they can be lists; maps can be mappings.
func TestWaysToSet(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"a.yaml", "b.yaml", "c.yaml", "a,b.yaml", "a:1", "b:2"} {
		write(t, file, "rules: []\n")
	}
	const two = "map[a.example.com:http://127.0.0.1:1 b.example.com:https://b.internal]"
	for _, row := range []struct {
		name      string
		flags     []string
		variables map[string]string
		file      string
		want      string
	}{
		{"default", nil, nil, "", "queue 16384;"},
		{"file", nil, nil, "queue_size: 4", "queue 4;"},
		{"variable over file", nil, map[string]string{"queue-size": "3"}, "queue_size: 4", "queue 3;"},
		{"flag over variable and file", []string{"--queue-size=2"}, map[string]string{"queue-size": "3"}, "queue_size: 4", "queue 2;"},
		{"overridden values are not parsed", []string{"--queue-size=2"}, map[string]string{"queue-size": "many"}, "queue_size: many", "queue 2;"},
		{"the last flag", []string{"--queue-size=many", "--queue-size=2"}, nil, "", "queue 2;"},
		{"list with commas", []string{"--rules=a.yaml,b.yaml"}, nil, "", "rules [a.yaml b.yaml];"},
		{"repeated list", []string{"--rules=a.yaml,b.yaml", "--rules=c.yaml"}, nil, "", "rules [a.yaml b.yaml c.yaml];"},
		{"list with commas and spaces", nil, map[string]string{"rules": " a.yaml , b.yaml "}, "", "rules [a.yaml b.yaml];"},
		{"list in lines", nil, map[string]string{"rules": "a.yaml\nb.yaml\n"}, "", "rules [a.yaml b.yaml];"},
		{"in the file with commas", nil, nil, "rules: a.yaml, b.yaml", "rules [a.yaml b.yaml];"},
		{"in the file in lines", nil, nil, "rules:\n  - a.yaml\n  - b.yaml", "rules [a.yaml b.yaml];"},
		{"in the file with a comma in an element", nil, nil, "rules: ['a,b.yaml', c.yaml]", "rules [a,b.yaml c.yaml];"},
		{"in the file twice", nil, nil, "shard: &list [a:1, b:2]\nrules: *list", "rules [a:1 b:2];"},
		{"a flag replaces what the file has", []string{"--rules=c.yaml"}, nil, "rules: [a.yaml, b.yaml]", "rules [c.yaml];"},
		{"mapping", nil, nil, "host_origin:\n  a.example.com: http://127.0.0.1:1\n  b.example.com: https://b.internal\n", two},
		{"mapping as a list", nil, nil, "host_origin:\n  - a.example.com=http://127.0.0.1:1\n  - b.example.com=https://b.internal\n", two},
		{"mapping with commas", nil, nil, "host_origin: a.example.com=http://127.0.0.1:1, b.example.com=https://b.internal\n", two},
		{"alias", nil, nil, "node_header: &a b.internal\nhost_origin: {*a : https://b.internal}\n", "map[b.internal:https://b.internal]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			flags := append(row.flags, "--origin=http://127.0.0.1:1", "--secret=0123456789abcdef")
			if !strings.Contains(row.want, "rules") {
				flags = append(flags, "--rules=a.yaml")
			}
			o, err := settables["node"].run(t, flags, row.variables, row.file)
			if err != nil {
				t.Fatal(err)
			}
			n := o.(pop.Options)
			if got := fmt.Sprintf("queue %d; rules %v; origins %v", n.QueueSize, n.RuleFiles, n.HostOrigins); !strings.Contains(got, row.want) {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

// Excerpts of a file that was written on Windows show neither its byte order mark nor its carriage returns.
func TestExcerptsOfWindowsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	write(t, file, "\ufeffqueue_size: many\r\nqueue: 1\r\n")
	code, _, stderr := edge("node", "--config="+file)
	for _, want := range []string{"\n    queue_size: many\n                ^\n", "\n    queue: 1\n    ^\n"} {
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %s\nwant 2 and %q", code, stderr, want)
		}
	}
}

// Each usage text is a phrase that fits on a line.
func TestFlagUsage(t *testing.T) {
	for _, cmd := range newRoot(io.Discard, io.Discard).Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Usage == "" || strings.HasSuffix(f.Usage, ".") || len(f.Usage) > 140 {
				t.Errorf("%s --%s: usage %q", cmd.Name(), f.Name, f.Usage)
			}
		})
	}
}

// flagPattern matches a flag in the help of another flag.
var flagPattern = regexp.MustCompile(`--[a-z][a-z-]*`)

// sampleOf returns a file of settings with all rows.
func sampleOf(rows []setting.Setting) string {
	var b strings.Builder
	b.WriteString(`# Settings of a node: edge node --config node.yaml. Each is also a flag (--tls-listen) and a variable
# (EDGE_TLS_LISTEN); flags override variables, and variables override this file. Settings after a # are
# off; the other values are defaults, except names, addresses and files. File names are relative to the
# current directory of the node, not to this file.
`)
	for _, row := range rows {
		if row.Group != "" {
			fmt.Fprintf(&b, "\n# %s\n", row.Group)
		}
		value, off := strings.CutPrefix(row.Sample, "#")
		line := key(row.Name) + ": "
		if line += value; value == "" {
			line += row.Value.Default
		}
		if off {
			line = "#" + line
		}
		help := flagPattern.ReplaceAllStringFunc(strings.ReplaceAll(row.Help, "`", ""), func(flag string) string { return key(flag[2:]) })
		fmt.Fprintf(&b, "%-38s # %s\n", line, help)
	}
	return b.String()
}

// settingsPage returns the page that describes the settings of rows.
func settingsPage(rows []setting.Setting) string {
	var b strings.Builder
	b.WriteString(`# Settings

The settings of a node. Each is a key of the file that ` + "`edge node --config node.yaml`" + ` reads (` + "`log_level: info`" + `), a variable (` + "`EDGE_LOG_LEVEL`" + `) and a flag
(` + "`--log-level`" + `). Flags override variables, and variables override the file. Lists in flags and variables are separated by commas. Durations are
` + "`300ms`, `5s`, `1h30m` or `1d`" + `. File names are relative to the current directory of the node (` + "`/etc/edge`" + ` for services of the packages), not to the settings file.
` + "`edge check node.yaml`" + ` checks a file. [node.yaml](../testdata/node.yaml) has all of them, with defaults or examples. This page is generated from the code.
`)
	page := regexp.MustCompile(`docs/(\w+\.md)`)
	for _, row := range rows {
		if row.Group != "" {
			fmt.Fprintf(&b, "\n## %s%s\n\n| setting | default | type | meaning |\n|---|---|---|---|\n", strings.ToUpper(row.Group[:1]), row.Group[1:])
		}
		standard := row.Value.Default
		if row.Name == "name" {
			standard = "the host name"
		} else if standard != "" {
			standard = "`" + standard + "`"
		}
		meaning := flagPattern.ReplaceAllStringFunc(strings.ReplaceAll(row.Help, "`", ""), func(flag string) string { return "`" + key(flag[2:]) + "`" })
		meaning = page.ReplaceAllString(meaning, "[$1]($1)")
		if row.Needs != nil {
			meaning += ". Needs `" + strings.ReplaceAll(key(strings.Join(row.Needs, "` and `")), "|", "` or `") + "`"
		}
		if row.Contradicts != "" {
			meaning += ". Contradicts `" + strings.ReplaceAll(key(row.Contradicts), "|", "` and `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", key(row.Name), standard, row.Value.Type, strings.ReplaceAll(meaning, "|", `\|`))
	}
	return b.String()
}

// docs/settings.md has every setting.
func TestSettingsPage(t *testing.T) {
	golden.Check(t, "../../docs/settings.md", []byte(settingsPage(append(pop.Settings(new(pop.Options)), new(logging).settings()...))))
}

// The sample file has every setting with its default or an example, which removing a # enables.
func TestSampleSettings(t *testing.T) {
	const file = "../../testdata/node.yaml"
	rows := append(pop.Settings(new(pop.Options)), new(logging).settings()...)
	want := sampleOf(rows)
	golden.Check(t, file, []byte(want)) // generated from the table of settings
	if strings.Contains(want, "\ntrusted_proxy:") {
		t.Error("the unchanged file trusts proxies")
	}
	t.Chdir(t.TempDir())
	write(t, "secret", "0123456789abcdef\n")
	write(t, "rules.yaml", "rules: []\n")
	if _, err := settables["node"].run(t, nil, nil, want); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	for _, row := range rows {
		if value, off := strings.CutPrefix(row.Sample, "#"); off {
			if _, err := settables["node"].run(t, []string{"--rules=rules.yaml", "--origin=http://127.0.0.1:1"}, nil, key(row.Name)+": "+value); err != nil {
				if e := new(setting.Error); !errors.As(err, &e) && !strings.Contains(err.Error(), " needs ") {
					t.Errorf("%s: %v", row.Name, err)
				}
			}
		}
	}
}
