package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
)

// A node tells the service manager when it is ready and stops.
func TestNotify(t *testing.T) {
	t.Parallel()
	addr := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	dir := t.TempDir()
	write(t, dir+"/rules.yaml", generous)
	p := startCommand(t, dir, []string{"NOTIFY_SOCKET=" + addr}, "edge", "node", "--rules=rules.yaml", "--listen=127.0.0.1:0", "--metrics-listen=", "--admin-listen=", "--origin=http://127.0.0.1:1")
	expect := func(want string) {
		t.Helper()
		_ = manager.SetReadDeadline(time.Now().Add(patience))
		packet := make([]byte, 4096)
		n, err := manager.Read(packet)
		if err != nil || !regexp.MustCompile("^"+want+"$").Match(packet[:n]) {
			t.Fatalf("the node sent %q, %v, want %s", packet[:n], err, want)
		}
	}
	expect("READY=1")
	p.Signal(syscall.SIGTERM)
	expect("STOPPING=1")
	if code := p.End(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// activated starts a node as a service manager with socket activation does.
func activated(t *testing.T, names string, sockets []*os.File, args ...string) *harness.Process {
	t.Helper()
	harness.Installed(t, "bash")
	dir := t.TempDir()
	write(t, dir+"/rules.yaml", generous)
	cmd := exec.Command("bash", append([]string{"-c", `LISTEN_PID=$$ exec edge node --rules=rules.yaml "$@"`, "bash"}, args...)...)
	cmd.Dir = dir
	cmd.Env = environ("LISTEN_FDS="+string(rune('0'+len(sockets))), "LISTEN_FDNAMES="+names)
	cmd.ExtraFiles = sockets
	return harness.Start(t, cmd)
}

func openSocket(t *testing.T) (file *os.File, addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // the file has its own descriptor
	if file, err = ln.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, ln.Addr().String()
}

// While a node restarts under load, connections wait in the service manager's sockets: every request is
// answered.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer origin.Close()
	clients, addr := openSocket(t)
	operators, metrics := openSocket(t)
	run := func() *harness.Process {
		p := activated(t, "http:metrics", []*os.File{clients, operators}, "--origin="+origin.URL)
		p.Wait(p.Stderr, `node started`)
		return p
	}
	p := run()
	if a := get(t, http.DefaultClient, "http://"+metrics+"/livez"); a.StatusCode != http.StatusOK {
		t.Errorf("/livez: %d", a.StatusCode)
	}
	var sending sync.WaitGroup
	stop := make(chan struct{})
	var answered atomic.Int64
	sending.Go(func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			a, err := try(client, "http://"+addr+"/")
			if err != nil || a.StatusCode != http.StatusTeapot {
				t.Errorf("request %d: %v %v", n, a, err)
			}
			answered.Add(1)
		}
	})
	p.Signal(syscall.SIGTERM)
	if code := p.End(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	run()
	before := answered.Load() // one of these may have been sent to the old node
	eventually(t, "the new node answers", func() bool { return answered.Load() >= before+2 })
	close(stop)
	sending.Wait()
}

func TestInvalidSockets(t *testing.T) {
	t.Parallel()
	one, _ := openSocket(t)
	other, _ := openSocket(t)
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, test := range []struct {
		name, names string
		sockets     []*os.File
		want        string
	}{
		{"unknown name", "edge.socket", []*os.File{one}, `edge: socket 3 of the service manager has the unknown name "edge.socket"`},
		{"duplicate name", "http:http", []*os.File{one, other}, `edge: the service manager has two sockets named "http"`},
		{"not a socket", "http", []*os.File{file}, `edge: socket "http" of the service manager: `},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := activated(t, test.names, test.sockets, "--origin=http://127.0.0.1:1")
			if code := p.End(); code == 0 || !strings.Contains(p.Stderr.String(), test.want) || !strings.Contains(p.Stderr.String(), "edge: hint: ") {
				t.Errorf("exit code %d, stderr %s, want %s", code, p.Stderr, test.want)
			}
		})
	}
}

// Every command has a manual page, in which no line is mistaken for a troff request.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	root := newRoot(os.Stdout, os.Stderr)
	if err := writeMan(root, dir); err != nil {
		t.Fatal(err)
	}
	request := regexp.MustCompile(`(?m)^[.'](?:TH|SH|PP|TP|B|nf|fi)?\b`)
	for _, name := range []string{"edge", "edge-node", "edge-import", "edge-mitigations-lift"} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, ".") && !request.MatchString(line) {
				t.Errorf("%s: unknown request %q", name, line)
			}
		}
	}
}
