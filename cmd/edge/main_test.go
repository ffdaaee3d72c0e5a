package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/edgelimit/edge/internal/golden"
	"github.com/edgelimit/edge/internal/harness"
)

// TestMain lets tests and scripts run the command in its own process.
func TestMain(m *testing.M) {
	run := &tokenTests{M: m}
	if os.Getenv("RUNTIME_DIRECTORY") == "" { // otherwise this process is a command of a test
		var err error
		if run.dir, err = os.MkdirTemp("", "edge-test"); err == nil {
			err = errors.Join(os.Setenv("RUNTIME_DIRECTORY", run.dir),
				os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")) // by default the race detector sleeps for a second
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

// TestScripts runs the scripts of testdata, which show the behavior of the command line. scriptCommands
// extends testscript's own commands. Scripts run one after another, and edge runs in this process, which is many
// times faster than a process for each command.
func TestScripts(t *testing.T) {
	testscript.RunT(serial{t}, testscript.Params{
		Dir:                 "testdata",
		Cmds:                scriptCommands,
		Setup:               func(*testscript.Env) error { clear(scriptVariables); return nil },
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *golden.Update,
	})
}

// A serial runs scripts one after another.
type serial struct{ *testing.T }

func (s serial) Parallel() {}

func (s serial) Verbose() bool { return testing.Verbose() }

func (s serial) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(serial{t}) })
}

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"exits": exits,
	"json":  jsonValue,
	"lines": countLines,
	"runs":  runs,
	"set":   setVariable,
}

// scriptVariables are the settings in the environment of the current script.
var scriptVariables = map[string]string{}

// set NAME=VALUE sets a variable of the environment of edge.
func setVariable(ts *testscript.TestScript, neg bool, args []string) {
	name, value, ok := strings.Cut(strings.Join(args, " "), "=")
	if neg || !ok {
		ts.Fatalf("usage: set NAME=VALUE")
	}
	scriptVariables[name] = value
}

// runScripted runs edge in the directory and the environment of a script.
func runScripted(ts *testscript.TestScript, args []string) (code int, stdout, stderr string) {
	before, err := os.Getwd()
	ts.Check(err)
	ts.Check(os.Chdir(ts.MkAbs(".")))
	for name, value := range scriptVariables {
		ts.Check(os.Setenv(name, value))
	}
	os.Args = append([]string{"edge"}, args...)
	out, errs := harness.NewOutput(), harness.NewOutput() // what runs in the background may still write
	code = run(args, out, errs)
	for name := range scriptVariables {
		ts.Check(os.Unsetenv(name))
	}
	ts.Check(os.Chdir(before))
	stdout, stderr = out.String(), errs.String()
	_, _ = io.WriteString(ts.Stdout(), stdout)
	_, _ = io.WriteString(ts.Stderr(), stderr)
	return code, stdout, stderr
}

// runs edge ARGUMENT… runs edge, which must exit with 0, and may write to stderr.
func runs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || args[0] != "edge" {
		ts.Fatalf("usage: runs edge [ARGUMENT…]")
	}
	if code, _, stderr := runScripted(ts, args[1:]); code != 0 {
		ts.Fatalf("exit code %d\n%s", code, stderr)
	}
}

// exits CODE edge ARGUMENT… runs edge, which must exit with CODE. Its stderr must follow the style of edge's
// messages.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "edge" {
		ts.Fatalf("usage: exits CODE edge [ARGUMENT…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got, stdout, stderr := runScripted(ts, args[2:])
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

// The hint about a denied operation depends on what was denied.
func TestHintOfDenied(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "listen", Net: "tcp", Err: syscall.EACCES}, "ports below 1024 need root or CAP_NET_BIND_SERVICE"},
		{&net.OpError{Op: "listen", Net: "unix", Err: syscall.EACCES}, "check the permissions of the file"},
		{&os.PathError{Op: "open", Path: "a", Err: syscall.EACCES}, "check the permissions of the file"},
	} {
		if got := hintOf(fmt.Errorf("pop: %w", row.err)); got != row.want {
			t.Errorf("the hint of %q is %q, want %q", row.err, got, row.want)
		}
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
