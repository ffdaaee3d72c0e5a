package decision

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/rule"
)

// After a failed write, the file is opened again, and describes the rules again.
func TestFailedWrite(t *testing.T) {
	l := New(Options{File: filepath.Join(t.TempDir(), "log"), Size: 1 << 30, Now: time.Now,
		Problem: func(string) {}})
	if err := l.Open(); err != nil {
		t.Fatal(err)
	}
	now, f, r := time.Now(), &l.file, &rule.Rule{ID: "all"}
	f.refer(r, 1)
	f.flush(now)
	f.close()
	var err error
	if f.out, err = os.Open(f.o.File); err != nil { // cannot be written
		t.Fatal(err)
	}
	f.refer(&rule.Rule{ID: "lost"}, 1)
	f.flush(now.Add(2 * time.Second))
	f.refer(r, 1)
	f.flush(now.Add(4 * time.Second))
	f.close()
	text, err := os.ReadFile(f.o.File)
	if got := strings.Count(string(text), `"rule":"all"`); err != nil || got != 2 || strings.Contains(string(text), "lost") {
		t.Errorf("%v; rule all is described %d times, want 2:\n%s", err, got, text)
	}
}
