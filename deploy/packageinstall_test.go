//go:build linux

package deploy_test

import (
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
)

// The commands of docs/install.md install the same files from a tarball as the packages do.
func testTarball(t *testing.T, dir string) {
	_, text, _ := strings.Cut(read(t, "../docs/install.md"), "\nFrom a tarball,")
	_, text, _ = strings.Cut(text, "```sh\n")
	text, _, _ = strings.Cut(text, "\n```")
	r := newRoot(t, "install", "cp")
	run(t, os.Environ(), "tar", "-xzf", only(t, dir, "edge-1.0.0-*.tar.gz"), "-C", r.dir)
	top := "/" + filepath.Base(only(t, r.dir, "edge-*"))
	r.sh("cd " + top + "\n" + strings.ReplaceAll(text, "groups edge-proxy edge", "groups edge-proxy edge; usermod --append --groups edge-proxy www-data"))
	r.sh("cp " + top + "/edge-envoy /usr/bin")
	r.works("1.0.0")
	got := r.snapshot()
	r.run("dpkg", "--force-unsafe-io", []string{"--force-confold", "--install", only(t, dir, "edge_*.deb")})
	for name, want := range r.snapshot() {
		file := strings.Replace(name, "/usr/lib/systemd", "/etc/systemd", 1)
		if !regexp.MustCompile(`^/usr/share/(doc|zsh|fish|bash-completion)|^/etc/(group|gshadow)`).MatchString(name) && got[file] != want {
			t.Errorf("%s is not what %s is in the package", file, name)
		}
	}
}

// The packages' scripts and the OpenRC service do the right thing under each service manager.
func TestPackageScripts(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for _, program := range []string{"chgrp", "systemctl", "rc-service", "journalctl", "edge"} {
		r.write("usr/bin/"+program, `#!/bin/sh
echo "$(pwd): ${0##*/} $*"
case $* in
"reload edge.service" | "edge reload") [ ! -e /tmp/refused ] ;;
*is-active* | *status) [ ! -e /tmp/stopped ] ;;
*restart*) [ ! -e /tmp/fails ] ;;
esac
`)
	}
	r.write("postinstall", read(t, "package/postinstall"))
	r.write("openrc", read(t, "package/etc/init.d/edge"))
	for _, manager := range []struct{ dir, restart string }{
		{"systemd/system", "/: systemctl try-restart edge.service"},
		{"openrc", "/: rc-service edge restart"},
	} {
		r.make("run/" + manager.dir)
		for state, restarts := range map[string]bool{"running": true, "refused": false, "fails": true} {
			r.write("tmp/"+state, "")
			out := r.sh("/postinstall") // never fails
			if strings.Contains(out, manager.restart) != restarts || strings.Contains(out, "still runs its previous version") == restarts {
				t.Errorf("with /run/%s and a node that is %s, an upgrade does\n%s", manager.dir, state, out)
			}
			r.sh("rm /tmp/" + state)
		}
		r.write("tmp/stopped", "")
		if out := r.sh("/postinstall"); strings.Contains(out, "reload edge") || strings.Contains(out, "edge reload") {
			t.Errorf("with /run/%s, an installation does\n%s", manager.dir, out)
		}
		r.sh("rm -r /tmp/stopped /run/" + manager.dir)
	}
	r.make("etc/edge")
	for _, function := range []string{"start_pre", "reload"} {
		out := r.sh(`checkpath() { :; }; su() { echo "as $5"; sh -c "$4"; }; . /openrc; supervise_daemon() { :; }; ` + function + " 2>&1 || true")
		if !strings.Contains(out, "as edge\n/etc/edge: edge check /etc/edge/node.yaml") {
			t.Errorf("%s of the service does\n%s", function, out)
		}
	}
}

// The package adds what is missing of its user and groups, also if some exist.
func TestPreinstall(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"true", "groupadd edge", "groupadd edge-proxy", "/preinstall 2>/dev/null"} {
		r := newRoot(t, "id")
		r.write("preinstall", read(t, "package/preinstall"))
		if got := r.sh(before + " && /preinstall 2>/dev/null && id -Gn edge"); got != "edge edge-proxy" {
			t.Errorf("after %s, the installation adds the user to %q", before, got)
		}
	}
}

// docs/install.md promises a limited nginx in five commands. The test runs those that need no network and no systemd. For
// the others, it runs dpkg, nginx, and the commands of the systemd unit.
func testFiveCommands(t *testing.T, dir string) {
	_, text, _ := strings.Cut(read(t, "../docs/install.md"), "\n## From the package to a limited nginx\n")
	_, text, _ = strings.Cut(text, "```sh\n")
	text, rest, _ := strings.Cut(text, "\n```")
	commands := strings.Split(text, "\n")
	if len(commands) != 5 || !strings.HasPrefix(commands[0], "apt-get install -y nginx ./edge_") ||
		!slices.Equal(commands[3:], []string{"systemctl enable --now edge", "systemctl reload nginx"}) {
		t.Fatalf("commands %q, want an installation, two changes, a start and a reload", commands)
	}
	r := newRoot(t, "nginx", "sed")
	run(t, os.Environ(), "cp", "-R", "/etc/nginx", r.path("etc"))
	r.make("var/log/nginx")
	r.make("var/lib/nginx")
	r.dpkg("--install", only(t, dir, "edge_*.deb"))
	r.sh(commands[1])
	r.sh(commands[2])

	// The site listens elsewhere, and the node does not take ports that another node on this
	// machine may use.
	address := harness.ReservePort(t)
	r.sh(`sed -i -e 's/listen 80 /listen ` + address + ` /' -e '/listen \[::\]/d' /etc/nginx/sites-available/default`)
	r.sh(`sed -i -e 's/^\(metrics_listen\|admin_listen\):.*/\1: ""/' /etc/edge/node.yaml`)
	var ids []uint32
	for field := range strings.SplitSeq(r.sh("getent passwd edge; getent group edge-proxy"), "\n") {
		for _, id := range regexp.MustCompile(`:(\d+)\b`).FindAllStringSubmatch(field, -1) {
			n, err := strconv.ParseUint(id[1], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, uint32(n))
		}
	}
	r.make("run/edge")
	if err := os.Chown(r.path("run/edge"), int(ids[0]), int(ids[1])); err != nil {
		t.Fatal(err)
	}
	start := func(credential *syscall.Credential, args ...string) *harness.Process {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: r.dir, Credential: credential}
		return harness.Start(t, cmd)
	}
	node := &syscall.Credential{Uid: ids[0], Gid: ids[1], Groups: ids[2:]}
	unit := read(t, r.path("usr/lib/systemd/system/edge.service"))
	var service *harness.Process
	for _, m := range regexp.MustCompile(`(?m)^(ExecStartPre|ExecStart)=(.*)$`).FindAllStringSubmatch(unit, -1) {
		if p := start(node, strings.Fields(m[2])...); m[1] == "ExecStart" {
			service = p
			p.Wait(p.Stderr, "node started")
		} else if code := p.End(); code != 0 {
			t.Fatalf("%s: exit code %d", m[2], code)
		}
	}
	nginx := start(nil, "/usr/bin/nginx", "-g", "daemon off;")
	t.Cleanup(nginx.Terminate) // its workers, too
	statuses := map[int]int{}
	harness.Until(t, "nginx refuses a client", harness.Patience, time.Millisecond, func() bool {
		resp, err := http.Get("http://" + address + "/")
		if err != nil {
			return false // nginx has not started
		}
		_ = resp.Body.Close()
		statuses[resp.StatusCode]++
		return resp.StatusCode == http.StatusTooManyRequests
	})
	if got := slices.Sorted(maps.Keys(statuses)); !slices.Equal(got, []int{404, 429}) || statuses[404] < 200 {
		t.Errorf("answers by status: %v, want more than 200 before 429", statuses)
	}

	// The package can be removed once its lines are removed from nginx's configuration.
	_, rest, _ = strings.Cut(rest, "```sh\n")
	change, _, _ := strings.Cut(rest, "\n")
	r.sh(change)
	service.Terminate()
	r.dpkg("--purge", "edge")
	r.sh("nginx -t")
}
