package load_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/pop/rule"
)

// A limiter is a PoP of some nodes that share what they know at once. It counts by an exact
// log of what passed, and mitigates until the rule's timeout is over and no more than the
// threshold are left. What is wrong with it is chosen.
type limiter struct {
	threshold int
	period    time.Duration
	timeout   time.Duration

	more      int    // how much greater its threshold really is
	fixed     bool   // it counts fixed windows
	deaf      int    // the node that ignores mitigations, from 1
	refuses   string // a client that is always refused
	hurry     int    // how many seconds Retry-After is too short
	silent    bool   // there is no Retry-After
	estimates bool   // it counts by two windows

	late time.Duration // until nodes know of a mitigation

	mu      sync.Mutex
	counted map[string][]time.Time
	since   map[string]time.Time
	until   map[string]time.Time
}

// in returns how many of the requests are in the period that ends at t.
func (l *limiter) in(requests []time.Time, t time.Time) (n float64) {
	window := t.Truncate(l.period)
	for _, at := range requests {
		switch {
		case l.fixed || l.estimates:
			if !at.Before(window) {
				n++
			} else if l.estimates && !at.Before(window.Add(-l.period)) {
				n += 1 - float64(t.Sub(window))/float64(l.period)
			}
		case at.After(t.Add(-l.period)):
			n++
		}
	}
	return n
}

// answer decides about a request at a node, from 1, and returns after how many seconds its
// client may come back, 0 if it passes.
func (l *limiter) answer(node int, client string) (seconds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counted == nil {
		l.counted, l.since, l.until = map[string][]time.Time{}, map[string]time.Time{}, map[string]time.Time{}
	}
	now := time.Now()
	if client == l.refuses {
		return 1
	}
	if left := l.until[client].Sub(now); left > 0 && node != l.deaf && now.Sub(l.since[client]) >= l.late {
		return max(1, int((left+time.Second-1)/time.Second)-l.hurry)
	}
	requests := append(l.counted[client], now)
	for requests[0].Before(now.Add(-2 * l.period)) {
		requests = requests[1:]
	}
	l.counted[client] = requests
	over := func(t time.Time) bool { return l.in(requests, t) > float64(l.threshold+l.more) }
	if over(now) {
		until := now.Add(l.timeout)
		for over(until) {
			until = until.Add(5 * time.Millisecond)
		}
		if now.After(l.until[client]) {
			l.since[client] = now
		}
		l.until[client] = until
	}
	return 0
}

// rules are those that it enforces.
func (l *limiter) rules(t testing.TB) *rule.Set {
	t.Helper()
	rules, err := rule.Parse("rules.yaml", fmt.Appendf(nil, "rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: %s}], mitigation_timeout: %s}]",
		l.threshold, rule.FormatDuration(l.period), rule.FormatDuration(l.timeout)))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// serve answers requests at a node.
func (l *limiter) serve(node int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Edge-Node", fmt.Sprintf("node-%d", node))
		time.Sleep(200 * time.Microsecond)
		seconds := l.answer(node, r.Header.Get("X-Forwarded-For"))
		time.Sleep(300 * time.Microsecond)
		if seconds == 0 {
			w.Header().Set("RateLimit", `"all";r=5;t=60`)
			_, _ = io.WriteString(w, "hello")
			return
		}
		if !l.silent {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			w.Header().Set("RateLimit", fmt.Sprintf(`"all";r=0;t=%d`, seconds))
		}
		w.WriteHeader(http.StatusTooManyRequests)
	})
}

// A pipes is a listener whose connections are in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// attack sends o at a PoP of three nodes on a virtual clock, and returns what became of it.
// The clock begins at an edge of windows.
func (l *limiter) attack(t *testing.T, o load.Options) (log *load.Log) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	synctest.Test(t, func(t *testing.T) {
		nodes := map[uint16]*pipes{}
		var servers []*http.Server
		var serving sync.WaitGroup
		for i := range 3 {
			p := &pipes{make(chan net.Conn), make(chan struct{})}
			server := &http.Server{Handler: l.serve(i + 1), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
			servers = append(servers, server)
			serving.Go(func() { _ = server.Serve(p) })
			port := uint16(i + 1)
			nodes[port] = p
			o.Targets = append(o.Targets, load.Target{Name: fmt.Sprintf("edge-%d", port), Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), port), Path: "/"})
		}
		o.Dial = func(ctx context.Context, t *load.Target) (net.Conn, error) { return nodes[t.Addr.Port()].dial(ctx) }
		o.Identity = load.Identity{Forwarded: true}
		o.UseTimers()
		var err error
		if log, err = load.Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		for _, s := range servers {
			_ = s.Close()
		}
		serving.Wait()
	})
	return log
}
