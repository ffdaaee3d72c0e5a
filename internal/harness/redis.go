package harness

import (
	"net"
	"os/exec"
	"strings"
	"testing"
)

// A Redis is a real Redis.
type Redis struct{ Server }

// StartRedis starts redis-server with args on a free port of 127.0.0.1, without data on disk. It skips the test if
// redis-server is not installed.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	path := Installed(t, "redis-server")
	r := &Redis{Server{Addr: ReservePort(t)}}
	_, port, _ := net.SplitHostPort(r.Addr)
	own := []string{"--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", ""}
	r.start(t, exec.Command(path, append(own, args...)...))
	return r
}

// Run returns the answer to a command of redis-cli, which shares no code with ours. It gives no password.
func (r *Redis) Run(args ...string) string {
	r.t.Helper()
	_, port, _ := net.SplitHostPort(r.Addr)
	answer, err := exec.Command("redis-cli", append([]string{"-p", port}, args...)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("redis-cli %v: %v: %s", args, err, answer)
	}
	return strings.TrimSpace(string(answer))
}
