package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/golden"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets tests and scripts run the command in its own process.
func TestMain(m *testing.M) {
	run := &tokenTests{M: m}
	if os.Getenv("RUNTIME_DIRECTORY") == "" { // otherwise this process is a command of a test
		var err error
		if run.dir, err = os.MkdirTemp("", "edge-test"); err == nil {
			err = os.Setenv("RUNTIME_DIRECTORY", run.dir)
		}
		if err != nil {
			panic(err)
		}
	}
	testscript.Main(run, map[string]func(){"edge": main})
}

// tokenTests runs tests whose nodes write the tokens of commands into their own directory.
type tokenTests struct {
	*testing.M
	dir string
}

func (t *tokenTests) Run() int {
	defer os.RemoveAll(t.dir)
	http.DefaultClient.Timeout = patience
	// Most tests wait for processes, so more tests than there are cores run in parallel, unless -parallel is
	// set.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("4"); err != nil {
			panic(err)
		}
	}
	return t.M.Run()
}

// TestScripts runs the scripts of testdata, which show the behaviour of the command line. scriptCommands
// extends testscript's own commands.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		Cmds:                scriptCommands,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *golden.Update,
	})
}

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"exits": exits,
	"json":  jsonValue,
	"lines": countLines,
}

// exits CODE COMMAND… runs a command, which must exit with CODE. Its stderr must follow the style of edge's
// messages.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	stdout, stderr := ts.ReadFile("stdout"), ts.ReadFile("stderr")
	if got != want {
		ts.Fatalf("exit code %d, want %d\n%s%s", got, want, stdout, stderr)
	}
	ts.Check(styled(stderr))
	if stdout != "" && got == 2 {
		ts.Fatalf("usage error with output on stdout:\n%s", stdout)
	}
	if (stderr == "") != (got == 0) {
		ts.Fatalf("exit code %d with this on stderr:\n%s", got, stderr)
	}
}

// sentencePattern matches a line that begins with a capitalized word other than a name.
var sentencePattern = regexp.MustCompile(`^edge: (hint: )?[A-Z][a-z]`)

// styled returns what is wrong with the style of lines for stderr.
func styled(stderr string) error {
	for line := range strings.Lines(stderr) {
		line = strings.TrimSuffix(line, "\n")
		switch excerpt := strings.HasPrefix(line, "    "); {
		case !excerpt && !strings.HasPrefix(line, "edge: "):
			return fmt.Errorf("line does not begin with edge: %q", line)
		case !excerpt && (sentencePattern.MatchString(line) || strings.HasSuffix(line, ".")):
			return fmt.Errorf("line is a sentence: %q", line)
		}
	}
	return nil
}

// json FILE PATH VALUE parses a file, such as stdout, as JSON, and compares the value at PATH, as in
// rules.0.id, with VALUE, which is JSON too. Without VALUE any value will do.
func jsonValue(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: json FILE PATH [VALUE]")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &v); err != nil {
		ts.Fatalf("%s is not JSON: %v", args[0], err)
	}
	for _, step := range strings.Split(args[1], ".") {
		found := false
		switch inside := v.(type) {
		case map[string]any:
			v, found = inside[step]
		case []any:
			i, err := strconv.Atoi(step)
			if found = err == nil && i < len(inside); found {
				v = inside[i]
			}
		}
		if !found {
			ts.Fatalf("%s has no %s", args[0], args[1])
		}
	}
	if len(args) == 2 {
		return
	}
	got, err := json.Marshal(v)
	ts.Check(err)
	if string(got) != args[2] {
		ts.Fatalf("%s is %s, want %s", args[1], got, args[2])
	}
}

// lines FILE N checks that a file has N lines.
func countLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines FILE N")
	}
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); strconv.Itoa(got) != args[1] {
		ts.Fatalf("%s has %d lines, want %s\n%s", args[0], got, args[1], ts.ReadFile(args[0]))
	}
}

// environ returns the environment without settings.
func environ(more ...string) (env []string) {
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "EDGE_") {
			env = append(env, entry)
		}
	}
	return append(env, more...)
}
