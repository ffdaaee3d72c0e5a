package pop_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
)

// fivePerClient limits each address to five requests, of any kind.
const fivePerClient = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 5, period: 7d}]}]"

// get returns a GET request for / with a Host.
func get(host string) string {
	return fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
}

// startNginx starts nginx with these lines in a server block, and returns a transport to it.
func startNginx(t testing.TB, server string) *http.Transport {
	t.Helper()
	path := harness.Installed(t, "nginx")
	dir, err := os.MkdirTemp("", "edge-nginx") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, user := filepath.Join(dir, "s"), ""
	if os.Geteuid() == 0 {
		user = "user root;"
	}
	config := fmt.Sprintf(`%s daemon off; master_process off; pid %[2]s/pid; error_log %[2]s/error;
events {}
http {
	access_log off; client_body_temp_path %[2]s/b; proxy_temp_path %[2]s/p; fastcgi_temp_path %[2]s/f; uwsgi_temp_path %[2]s/u; scgi_temp_path %[2]s/c;
	server { listen unix:%[3]s; %[4]s }
}`, user, dir, socket, server)
	file := filepath.Join(dir, "conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := harness.Start(t, exec.Command(path, "-p", dir, "-c", file))
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	harness.Until(t, "nginx listens", patience, 5*time.Millisecond, func() bool {
		if p.HasEnded() {
			t.Fatal("nginx exited")
		}
		conn, err := dial(t.Context(), "", "")
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	tr := &http.Transport{DialContext: dial}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}
