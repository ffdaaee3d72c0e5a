package load_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/rule"
)

// A limiter is a PoP whose nodes share their state immediately. Its fields select mistakes.
type limiter struct {
	quotas  []*quota // one for each rule; each counts the requests that none of them refuses
	first   bool     // Retry-After is that of the first quota that refuses, not the longest
	deaf    int      // index of a node that ignores mitigations, from 1
	refuses string   // a client that it always refuses
	blind   bool     // does not distinguish clients
	alter   func(h http.Header, seconds int)

	mu sync.Mutex
}

// A quota counts with an exact log of passed requests, and mitigates until the rule's timeout is over and the log has at
// most threshold requests.
type quota struct {
	threshold       int
	period, timeout time.Duration

	counted map[string][]time.Time
	until   map[string]time.Time // end of the mitigation
}

// ten returns the quota that most tests use.
func ten(timeout time.Duration) *quota {
	return &quota{threshold: 10, period: 10 * time.Second, timeout: timeout}
}

// count counts a request that passes.
func (q *quota) count(client string, now time.Time) {
	if q.counted == nil {
		q.counted, q.until = map[string][]time.Time{}, map[string]time.Time{}
	}
	requests := append(q.counted[client], now)
	for !requests[0].After(now.Add(-q.period)) {
		requests = requests[1:]
	}
	q.counted[client] = requests
	if over := len(requests) - q.threshold; over > 0 {
		q.until[client] = now.Add(max(q.timeout, requests[over-1].Add(q.period).Sub(now)))
	}
}

// answer handles a request at a node, counted from 1. It returns the seconds until its client may retry, or 0 if
// it passes, and the remaining quota.
func (l *limiter) answer(node int, client string) (seconds, remaining int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case client == l.refuses:
		return 1, 0
	case l.blind:
		client = ""
	}
	for _, q := range l.quotas {
		if left := q.until[client].Sub(now); left > 0 && node != l.deaf && !(l.first && seconds > 0) {
			seconds = max(seconds, int((left+time.Second-1)/time.Second))
		}
	}
	if seconds > 0 {
		return seconds, 0
	}
	for _, q := range l.quotas {
		q.count(client, now)
	}
	return 0, max(0, l.quotas[0].threshold-len(l.quotas[0].counted[client]))
}

// rules returns the rules that it enforces.
func (l *limiter) rules(t *testing.T) *rule.Set {
	t.Helper()
	var list []string
	for i, q := range l.quotas {
		list = append(list, fmt.Sprintf("{id: rule-%d, characteristics: [ip], limits: [{threshold: %d, period: %s}], mitigation_timeout: %s}",
			i, q.threshold, rule.FormatDuration(q.period), rule.FormatDuration(q.timeout)))
	}
	return parse(t, "rules: ["+strings.Join(list, ", ")+"]")
}

// policy returns the RateLimit-Policy of its rules.
func (l *limiter) policy() string {
	list := []string{`"never,;r=0"; q=7; w=1`}
	for i, q := range l.quotas {
		list = append(list, fmt.Sprintf(`"rule-%d";q=%d;w=%.0f`, i, q.threshold, q.period.Seconds()))
	}
	return strings.Join(list, ", ")
}

// serve answers requests at a node.
func (l *limiter) serve(node int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Edge-Node", fmt.Sprintf("node-%d", node))
		time.Sleep(200 * time.Microsecond)
		seconds, remaining := l.answer(node, r.Header.Get("X-Forwarded-For"))
		time.Sleep(300 * time.Microsecond)
		h.Set("RateLimit-Policy", l.policy())
		h.Set("X-RateLimit-Limit", "10")
		h.Set("RateLimit", fmt.Sprintf(`"never,;r=0";r=17;t=100, "all";r=%d;t=%d, "often";t=1;r=%d`, remaining, max(seconds, 60*min(1, remaining)), remaining))
		if seconds > 0 {
			h.Set("Retry-After", strconv.Itoa(seconds))
			h.Set("RateLimit", fmt.Sprintf(`"never,;r=0";r=7;t=100, "all";r=0;t=%d, "often";r=0;t=1`, seconds))
			h.Set("X-RateLimit-Remaining", "0")
			h.Set("X-RateLimit-Reset", strconv.Itoa(seconds))
		}
		if l.alter != nil {
			l.alter(h, seconds)
		}
		switch {
		case seconds > 0:
			w.WriteHeader(http.StatusTooManyRequests)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			_, _ = io.WriteString(w, "hello")
		}
	})
}

// attack runs o against a PoP of three nodes on a virtual clock, and returns the log.
func (l *limiter) attack(t *testing.T, o load.Options) (log *load.Log) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		nodes := map[uint16]*shard.Pipe{}
		var servers []*http.Server
		var serving sync.WaitGroup
		for port := range uint16(3) {
			p := shard.NewPipe()
			nodes[port] = p
			server := &http.Server{Handler: l.serve(int(port) + 1), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
			servers = append(servers, server)
			serving.Go(func() { _ = server.Serve(p) })
			o.Targets = append(o.Targets, load.Target{Name: fmt.Sprintf("edge-%d", port+1), Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), port), Path: "/"})
		}
		o.Dial = func(ctx context.Context, t *load.Target) (net.Conn, error) {
			return nodes[t.Addr.Port()].Dial(ctx, "", "")
		}
		o.Identity.Forwarded = true
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
