package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the code blocks of the README in a language.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(readme(t), -1) {
		all = append(all, m[1])
	}
	return all
}

// The configuration that the README shows is that of testdata: the rules as a whole, and the
// settings up to one of their empty lines.
func TestReadmeConfiguration(t *testing.T) {
	t.Parallel()
	shown := blocks(t, "yaml")
	for i, file := range []string{"../../testdata/rules.yaml", "../../testdata/node.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(shown) || shown[i] != string(text) && (i == 0 || !strings.HasPrefix(string(text), shown[i]+"\n") || len(shown[i]) < 1000) {
			t.Errorf("the README does not show %s as it is", file)
		}
	}
}

// Commands of the README work when they are pasted.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	commands := 0
	for _, block := range blocks(t, "sh") {
		for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
			if !strings.HasPrefix(line, "edge ") {
				continue
			}
			commands++
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				tryExample(t, line)
			})
		}
	}
	if commands == 0 {
		t.Error("the README shows no command")
	}
}

func TestReadmeLength(t *testing.T) {
	t.Parallel()
	if lines := strings.Count(readme(t), "\n"); lines > 250 {
		t.Errorf("the README has %d lines, want 250 at most", lines)
	}
}

// aSetting is a line of the sample settings, switched off or not.
var aSetting = regexp.MustCompile(`(?m)^#?(([a-z0-9-]+): .*)$`)

// The sample settings name every setting, show the default of those that are on, and can
// be switched on by removing a #.
func TestSampleSettings(t *testing.T) {
	t.Parallel()
	const file = "../../testdata/node.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fresh := func() *pflag.FlagSet { return newNode().Flags() }
	nothing := func(string) (string, bool) { return "", false }

	missing := map[string]bool{}
	for _, name := range settingNames(fresh()) {
		missing[name] = true
	}
	for _, m := range aSetting.FindAllStringSubmatch(string(text), -1) {
		line, name := m[1], m[2]
		if !missing[name] {
			t.Errorf("%s is no setting, or there twice", name)
		}
		delete(missing, name)
		alone := t.TempDir() + "/node.yaml"
		write(t, alone, line+"\n")
		flags := fresh()
		if err := readSettingsFile(flags, alone, map[string]bool{}); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		f, on := flags.Lookup(name), !strings.HasPrefix(m[0], "#")
		if own := strings.Contains(" name rules origin secret-file shard trusted-proxy gossip-listen gossip-key-file join ", " "+name+" "); on && !own && f.Value.String() != f.DefValue {
			t.Errorf("%s is %s, the default is %s", name, f.Value, f.DefValue)
		}
	}
	for name := range missing {
		t.Errorf("%s is missing", name)
	}
	flags := fresh()
	if err := flags.Set("config", file); err != nil {
		t.Fatal(err)
	}
	if err := readSettings(flags, nothing); err != nil {
		t.Error(err)
	}
}
