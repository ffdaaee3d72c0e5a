package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// start builds edge and starts it with args and a rules file.
func start(t testing.TB, rules string, args ...string) *harness.Process {
	t.Helper()
	dir := t.TempDir()
	edge, file := filepath.Join(dir, "edge"), filepath.Join(dir, "rules.yaml")
	build := exec.Command("go", "build", "-trimpath", "-o", edge, "./cmd/edge")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(file, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	return harness.Start(t, exec.Command(edge, append(args, "--rules="+file)...))
}
