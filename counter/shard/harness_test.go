package shard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/edgelimit/edge/counter/shard"
)

// ping is a command that changes nothing, and pong its answer.
const ping, pong = "delete nothing\r\n", "NOT_FOUND\r\n"

// patience is how long a test waits for a server before it fails.
const patience = 2 * time.Minute

// newServer returns a server that serves ln for the duration of the test.
func newServer(t testing.TB, o shard.Options, ln net.Listener) *shard.Server {
	t.Helper()
	s := shard.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// listenTCP starts a server and returns its address.
func listenTCP(t testing.TB, o shard.Options) string {
	ln := listen(t)
	newServer(t, o, ln)
	return ln.Addr().String()
}

// serveVariable, in the environment, makes the test binary a server until its
// input ends.
const serveVariable = "EDGE_SHARD_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		serveUntilEOF()
		return
	}
	goleak.VerifyTestMain(settling{m})
}

// settling is a testing.M that waits for goroutines, which may take a moment to end.
type settling struct{ *testing.M }

func (m settling) Run() int {
	code := m.M.Run()
	for giveUp := time.Now().Add(patience); code == 0 && goleak.Find() != nil && time.Now().Before(giveUp); {
	}
	return code
}

func serveUntilEOF() {
	s := shard.New(shard.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s.Serve(ctx, ln)
}

// startProcess starts a server in a process of its own, like memcached, and returns
// its address.
func startProcess(t testing.TB) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// dial connects to a pipe.
func dial(t testing.TB, p *shard.Pipe) *client {
	t.Helper()
	conn, err := p.Dial(context.Background(), "", "")
	return newClient(t, conn, err)
}

// still disables memcached's background threads. While one of them uses an item, incr
// may create a new one and decr may not pad, and they remove expired items before a
// command does. It also makes each item's memory larger than any item: after a number of
// 2^63 or more, incr searches the memory up to the next zero byte for a minus sign, which
// could be a byte of a pointer in the next item.
var still = []string{"-o", "no_lru_maintainer,no_lru_crawler,slab_sizes=1024"}

// client sends and receives raw bytes.
type client struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
	sent chan struct{} // closed when everything is sent
}

func newClient(t testing.TB, conn net.Conn, err error) *client {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	sent := make(chan struct{})
	close(sent)
	return &client{t, conn, bufio.NewReader(conn), sent}
}

func dialTCP(t testing.TB, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	return newClient(t, conn, err)
}

// send sends request from a goroutine, because over a pipe the server may reply before
// it has read everything.
func (c *client) send(request string) {
	before, sent := c.sent, make(chan struct{})
	c.sent = sent
	go func() {
		defer close(sent)
		<-before
		c.conn.SetWriteDeadline(time.Now().Add(patience))
		io.WriteString(c.conn, request)
	}()
}

// line returns the next line of a reply, including its end, or "" at the end of the
// connection.
func (c *client) line() string {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := c.r.ReadString('\n')
	if err != nil && isTimeout(err) {
		c.t.Fatalf("no line within %v, only %q", patience, line)
	}
	return line
}

// bytes returns the next n bytes, or fewer at the end of the connection.
func (c *client) bytes(n int) string {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, n)
	n, err := io.ReadFull(c.r, b)
	if err != nil && isTimeout(err) {
		c.t.Fatalf("no more than %q within %v", b[:n], patience)
	}
	return string(b[:n])
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// expect sends request and fails unless the reply is want.
func (c *client) expect(request, want string) {
	c.t.Helper()
	c.send(request)
	if got := c.bytes(len(want)); got != want {
		c.t.Fatalf("%q: got %q, want %q", request, got, want)
	}
}

// stats returns the figures of stats, and 0 for those that are not numbers.
func (c *client) stats() map[string]int64 {
	c.t.Helper()
	c.send("stats\r\n")
	stats := make(map[string]int64)
	for {
		line := c.line()
		if line == "END\r\n" {
			return stats
		}
		var name, value string
		if n, err := fmt.Sscanf(line, "STAT %s %s\r\n", &name, &value); n != 2 {
			c.t.Fatalf("stats: %q: %v", line, err)
		}
		stats[name], _ = strconv.ParseInt(value, 10, 64)
	}
}
