//go:build linux

package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// A root is a directory that packages are installed into (dpkg --root). It contains the programs and files that their
// scripts need.
type root struct {
	t   *testing.T
	dir string
}

func newRoot(t *testing.T, programs ...string) root {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Unavailable(t, "only root can install packages")
	}
	r := root{t, t.TempDir()}
	if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		r.make("usr/" + dir)
		if err := os.Symlink("usr/"+dir, r.path(dir)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"run", "tmp", "var/log", "var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		r.make(dir)
	}
	for _, file := range []string{"dev/null", "usr/share/doc/other", "usr/share/man/man1/other", "etc/default/other"} { // so that dpkg does not remove their directories when they become empty
		r.write(file, "")
	}
	r.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n")
	r.write("etc/shadow", "root:*:19000:0:99999:7:::\nwww-data:*:19000:0:99999:7:::\n")
	r.write("etc/group", "root:x:0:\nwww-data:x:33:\n")
	r.write("etc/gshadow", "root:*::\nwww-data:*::\n")
	r.write("var/lib/dpkg/status", "Package: passwd\nStatus: install ok installed\nMaintainer: a\nArchitecture: all\nVersion: 1\nDescription: a\n")
	for _, program := range append(programs, "sh", "getent", "useradd", "userdel", "usermod", "groupadd", "groupdel", "chgrp", "rm") {
		file := harness.Installed(t, program)
		r.write("usr/bin/"+program, read(t, file))
		libraries, _ := command(t, os.Environ(), nil, "ldd", file) // it fails for static programs
		for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(libraries, -1) {
			r.write(m[1], read(t, m[1]))
		}
	}
	return r
}

func (r root) path(name string) string { return filepath.Join(r.dir, name) }

func (r root) make(dir string) {
	r.t.Helper()
	if err := os.MkdirAll(r.path(dir), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r root) write(name, text string) {
	r.t.Helper()
	r.make(filepath.Dir(name))
	if err := os.WriteFile(r.path(name), []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// dpkg and rpm run outside the root, with --root; sh runs in it, with chroot.
func (r root) dpkg(args ...string) { r.t.Helper(); r.run("dpkg", "--force-unsafe-io", args) }
func (r root) rpm(args ...string)  { r.t.Helper(); r.run("rpm", "--nodeps", args) }
func (r root) run(name, flag string, args []string) {
	r.t.Helper()
	run(r.t, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, name, append([]string{"--root=" + r.dir, flag}, args...)...)
}
func (r root) sh(script string) string {
	r.t.Helper()
	return run(r.t, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "chroot", r.dir, "sh", "-ec", script)
}

// snapshot returns the content of every regular file and the type of every other. It omits dpkg's records and the
// backups that useradd and the like make (/etc/passwd-).
func (r root) snapshot() map[string]string {
	r.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(r.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(file, r.dir)
		switch {
		case strings.HasPrefix(name, "/var/lib/dpkg/"), name == "/dev/null", name == "/var/log/dpkg.log", name == "/etc/.pwd.lock", regexp.MustCompile(`^/etc/(passwd|shadow|group|gshadow)-$`).MatchString(name):
			return nil
		case d.Type().IsRegular():
			all[name] = read(r.t, file)
		default:
			all[name] = d.Type().String()
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}
