package pop_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edge/pop"
)

// Only the node's user and a group may connect to a Unix socket, whatever the umask is. A directory that the group cannot
// enter is an error: a proxy that cannot ask lets all requests pass.
func TestSocketGroup(t *testing.T) {
	gid := os.Getgid()
	if os.Geteuid() == 0 {
		gid = 65533 // any other one
	}
	stat := func(file string) (mode os.FileMode, owner int) {
		t.Helper()
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm(), int(info.Sys().(*syscall.Stat_t).Gid)
	}
	dir := filepath.Join(t.TempDir(), "edge")
	socket := filepath.Join(dir, "s")
	for range 2 { // the second time in a directory that exists
		ln, err := pop.ListenAt("unix:"+socket, gid)
		if err != nil {
			t.Fatal(err)
		}
		if mode, owner := stat(dir); mode != 0o750 || owner != gid {
			t.Errorf("the directory has mode %o and group %d", mode, owner)
		}
		if mode, owner := stat(socket); mode != 0o660 || owner != gid {
			t.Errorf("the socket has mode %o and group %d", mode, owner)
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = ln.Close()
	}
	ln, err := pop.ListenAt("unix:"+socket, 0)
	if err != nil {
		t.Fatal(err)
	}
	if mode, owner := stat(socket); mode != 0o660 || owner != os.Getgid() {
		t.Errorf("without a group the socket has mode %o and group %d", mode, owner)
	}
	_ = ln.Close()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := pop.ListenAt("unix:"+socket, gid); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("cannot enter its directory: chgrp %d %s", gid, dir)) {
		t.Errorf("in a directory that the group cannot enter: %v", err)
	}
}
