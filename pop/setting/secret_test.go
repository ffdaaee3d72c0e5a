package setting_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edge/pop/setting"
)

// Files that strangers can read or change are refused. Modes of mounted secrets, symbolic links and pipes are accepted.
func TestCheckSecret(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "secret"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{
		0o400: true, 0o600: true, 0o440: true, 0o640: true, // systemd: 0440; Kubernetes with fsGroup: 0440 or 0640
		0o644: false, 0o604: false, 0o444: false, 0o660: false, 0o602: false, 0o666: false,
	} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{file, link} {
			err := setting.CheckSecret(name)
			if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "chmod g-wx,o= "+name) {
				t.Errorf("mode %04o: %v", mode, err)
			}
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := setting.CheckSecret(pipe); err != nil { // such as <(pass show edge)
		t.Error("a pipe:", err)
	}
	if err := setting.CheckSecret(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Error("no file:", err)
	}
}
