package pop_test

// Scenarios use an origin, shards that can be killed and stalled, and a log, all in memory.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edgelimit/edge/counter/shard"
)

// fakeOrigin answers with a status after some time.
type fakeOrigin struct {
	mu     sync.Mutex
	status int
	takes  time.Duration
}

func (o *fakeOrigin) set(status int, takes time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status, o.takes = status, takes
}

func (o *fakeOrigin) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	status, takes := o.status, o.takes
	o.mu.Unlock()
	time.Sleep(takes)
	if status == 502 {
		return nil, errors.New("failed") // closes the connection
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// eventLog collects the nodes' log lines about mitigations.
type eventLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *eventLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.lines)
	out := strings.Join(l.lines, "")
	l.lines = nil
	return out
}

// eventHandler writes log lines as "12.5s n1: mitigation started rule=… why=…".
type eventHandler struct {
	log   *eventLog
	start time.Time
	node  string
}

func (h *eventHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (h *eventHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h *eventHandler) WithGroup(string) slog.Handler                { return h }
func (h *eventHandler) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprintf("%v %s: %s", r.Time.Sub(h.start), h.node, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "key" && a.Key != "period" {
			line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		return true
	})
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	h.log.lines = append(h.log.lines, line+"\n")
	return nil
}

// A fakeShard is a shard behind pipes, which can be killed and stalled.
type fakeShard struct {
	mu     sync.Mutex
	pipe   *shard.Pipe
	server *shard.Server
	conns  []net.Conn
	gate   chan struct{} // closed while the shard is not stalled
	slow   time.Duration // delay of its reads
	cancel context.CancelFunc
	seen   int
}

func newFakeShard() *fakeShard {
	gate := make(chan struct{})
	close(gate)
	return &fakeShard{gate: gate}
}

func (s *fakeShard) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	server := shard.New(shard.Options{})
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.server, s.pipe = server, shard.NewPipe()
	pipe := s.pipe
	go func() { _ = server.Serve(ctx, gated{pipe, s}) }()
}

func (s *fakeShard) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel == nil {
		return
	}
	s.cancel()
	s.cancel = nil
	_ = s.pipe.Close()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

func (s *fakeShard) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *fakeShard) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
}

func (s *fakeShard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	s.mu.Lock()
	pipe := s.pipe
	s.mu.Unlock()
	conn, err := pipe.Dial(ctx, network, addr)
	if err == nil {
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
	}
	return conn, err
}

// commands returns the number of commands since the last call.
func (s *fakeShard) commands() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.seen
	s.seen = 0
	return n
}

// gated is a listener whose connections block at the shard's gate after each read, as those of a stopped
// process do.
type gated struct {
	net.Listener
	shard *fakeShard
}

func (g gated) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatedConn{conn, g.shard}, nil
}

type gatedConn struct {
	net.Conn
	shard *fakeShard
}

func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.shard.mu.Lock()
	gate, slow := c.shard.gate, c.shard.slow
	if n > 0 {
		c.shard.seen++
	}
	c.shard.mu.Unlock()
	<-gate
	time.Sleep(slow)
	return n, err
}
