package version_test

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// Each way to build a program gives it a version. The program is this package and a main package that prints it, in a
// module of the same name as the real one.
func TestVersion(t *testing.T) {
	t.Parallel()
	harness.Installed(t, "git")
	source, err := os.ReadFile("version.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"go.mod":                      "module github.com/edgelimit/edge\n\ngo 1.26.0\n",
		"internal/version/version.go": string(source),
		"cmd/edge/main.go": "package main\n\nimport \"github.com/edgelimit/edge/internal/version\"\n\n" +
			"func main() { println(version.String()) }\n",
	}
	dir, bin := t.TempDir(), t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	edge := filepath.Join(bin, "edge")
	check := func(build, want string) {
		t.Helper()
		got := run(t, dir, nil, edge)
		if !regexp.MustCompile("^" + want + ` go1\.\d+\S* \w+/\w+\n$`).MatchString(got) {
			t.Errorf("%s: %q, want %s", build, got, want)
		}
	}
	build := func(args ...string) {
		t.Helper()
		run(t, dir, nil, "go", append(append([]string{"build", "-o", edge}, args...), "./cmd/edge")...)
	}

	build("-ldflags=-X=github.com/edgelimit/edge/internal/version.Release=v1.2.0")
	check("a release", `v1\.2\.0`)
	build()
	check("without a repository", "unreleased")

	git := func(args ...string) {
		t.Helper()
		run(t, dir, nil, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	}
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "--message=a")
	build("-buildvcs=true")
	check("a working copy", `v0\.0\.0-\d{14}-[0-9a-f]{12}`)
	git("tag", "v0.1.0")
	build("-buildvcs=true")
	check("a working copy of a release", `v0\.1\.0`)
	write(t, filepath.Join(dir, "go.mod"), files["go.mod"]+"\n")
	build("-buildvcs=true")
	check("a modified working copy", `v0\.1\.0\+dirty`)

	proxy := t.TempDir()
	versions := filepath.Join(proxy, "github.com/edgelimit/edge/@v")
	write(t, filepath.Join(versions, "list"), "v0.1.0\n")
	write(t, filepath.Join(versions, "v0.1.0.info"), `{"Version": "v0.1.0"}`)
	write(t, filepath.Join(versions, "v0.1.0.mod"), files["go.mod"])
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for name, text := range files {
		w, err := z.Create("github.com/edgelimit/edge@v0.1.0/" + name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(versions, "v0.1.0.zip"), archive.String())
	env := []string{"GOBIN=" + bin, "GOPROXY=file://" + proxy, "GONOSUMDB=*", "GOFLAGS=-modcacherw",
		"GOMODCACHE=" + t.TempDir()}
	run(t, bin, env, "go", "install", "github.com/edgelimit/edge/cmd/edge@v0.1.0")
	check("go install", `v0\.1\.0`)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run returns the output of a command.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
