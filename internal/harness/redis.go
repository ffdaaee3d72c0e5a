package harness

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Redis is a real Redis. Run talks to it over a Unix socket, without a password.
type Redis struct{ Server }

// StartRedis starts redis-server with args on a free port of 127.0.0.1, without data on disk. It skips the test if
// redis-server is not installed.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	path := Installed(t, "redis-server")
	dir := t.TempDir()
	r := &Redis{Server{Addr: ReservePort(t), network: "unix", address: filepath.Join(dir, "s")}}
	_, port, _ := net.SplitHostPort(r.Addr)
	own := []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--unixsocket", r.address, "--save", "",
		"--logfile", filepath.Join(dir, "log")}
	r.start(t, exec.Command(path, append(own, args...)...))
	return r
}

// Run returns the answer to a command of redis-cli, which shares no code with ours.
func (r *Redis) Run(args ...string) string {
	r.t.Helper()
	answer, err := exec.Command("redis-cli", append([]string{"-s", r.address}, args...)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("redis-cli %v: %v: %s", args, err, answer)
	}
	return strings.TrimSpace(string(answer))
}
