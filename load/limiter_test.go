package load_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/pop/rule"
)

// A limiter is a PoP whose nodes share their state at once. It counts by an exact log of passed requests, and
// mitigates until the rule's timeout is over and no more than the threshold are left. Its fields select
// mistakes.
type limiter struct {
	threshold int
	period    time.Duration
	timeout   time.Duration

	more      int    // difference to the correct threshold
	fixed     bool   // counts in fixed windows
	deaf      int    // index of a node that ignores mitigations, from 1
	refuses   string // a client that it always refuses
	hurry     int    // how much too short Retry-After is, in seconds
	silent    bool   // sends no Retry-After
	estimates bool   // counts by two windows
	blind     bool   // does not distinguish clients
	wobble    int    // how much later RateLimit and X-RateLimit-Reset are than Retry-After, in seconds
	poor      bool   // announces that nothing remains
	boast     bool   // announces that more remains than the limit

	// A second rule, which counts each request that neither refuses, and whether Retry-After is then that of
	// the first.
	also      *limiter
	forgetful bool

	late time.Duration // delay until nodes know of a mitigation

	mu      sync.Mutex
	counted map[string][]time.Time
	since   map[string]time.Time
	until   map[string]time.Time
}

// in returns the number of requests in the period that ends at t.
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

// answer decides a request at a node, from 1. It returns after how many seconds its client may retry, or 0 if
// it passes.
func (l *limiter) answer(node int, client string) (seconds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case client == l.refuses:
		return 1
	case l.blind:
		client = ""
	}
	seconds = l.refusal(node, client, now)
	if l.also == nil {
		if seconds == 0 {
			l.count(client, now)
		}
		return seconds
	}
	more := l.also.refusal(node, client, now)
	switch {
	case seconds == 0 && more == 0:
		l.count(client, now)
		l.also.count(client, now)
	case seconds == 0 || more > seconds && !l.forgetful:
		return more
	}
	return seconds
}

// remains returns the remaining quota of a client.
func (l *limiter) remains(client string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blind {
		client = ""
	}
	return max(0, l.threshold+l.more-int(math.Ceil(l.in(l.counted[client], time.Now()))))
}

// refusal returns after how many seconds a client is no longer refused, or 0 if it is not refused.
func (l *limiter) refusal(node int, client string, now time.Time) (seconds int) {
	if left := l.until[client].Sub(now); left > 0 && node != l.deaf && now.Sub(l.since[client]) >= l.late {
		return max(1, int((left+time.Second-1)/time.Second)-l.hurry)
	}
	return 0
}

// count counts a request that passes.
func (l *limiter) count(client string, now time.Time) {
	if l.counted == nil {
		l.counted, l.since, l.until = map[string][]time.Time{}, map[string]time.Time{}, map[string]time.Time{}
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
}

// rules returns the rules that it enforces.
func (l *limiter) rules(t testing.TB) *rule.Set {
	t.Helper()
	text := "rules: [" + l.rule("all")
	if l.also != nil {
		text += ", " + l.also.rule("also")
	}
	rules, err := rule.Parse("rules.yaml", []byte(text+"]"))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// rule returns its rule as text.
func (l *limiter) rule(id string) string {
	return fmt.Sprintf("{id: %s, characteristics: [ip], limits: [{threshold: %d, period: %s}], mitigation_timeout: %s}",
		id, l.threshold, rule.FormatDuration(l.period), rule.FormatDuration(l.timeout))
}

// serve answers requests at a node.
func (l *limiter) serve(node int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Edge-Node", fmt.Sprintf("node-%d", node))
		time.Sleep(200 * time.Microsecond)
		seconds := l.answer(node, r.Header.Get("X-Forwarded-For"))
		time.Sleep(300 * time.Microsecond)
		w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"all";q=%d;w=%d, "never,;r=0"; q=7; w=1`, l.threshold, l.period/time.Second))
		w.Header().Set("X-RateLimit-Limit", strconv.Itoa(l.threshold))
		if seconds == 0 {
			switch {
			case l.poor:
				w.Header().Set("RateLimit", `"never,;r=0"; r=7; t=1, "all";r=0;t=10`)
			case l.boast:
				w.Header().Set("RateLimit", fmt.Sprintf(`"all";r=%d;t=10`, l.threshold+1))
			default:
				w.Header().Set("RateLimit", fmt.Sprintf(`"all";r=%d;t=60, "never,;r=0"; t=1; r=%d`, l.remains(r.Header.Get("X-Forwarded-For")), l.threshold))
			}
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, "hello")
			return
		}
		if !l.silent {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			w.Header().Set("RateLimit", fmt.Sprintf(`"never,;r=0";r=7;t=100, "all";r=0;t=%d, "often";r=0;t=1`, seconds+l.wobble))
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.Header().Set("X-RateLimit-Reset", strconv.Itoa(seconds+l.wobble))
		}
		w.WriteHeader(http.StatusTooManyRequests)
	})
}

// attack sends o to a PoP of three nodes on a virtual clock, and returns the log.
func (l *limiter) attack(t *testing.T, o load.Options) (log *load.Log) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		nodes := map[uint16]*shard.Pipe{}
		var servers []*http.Server
		var serving sync.WaitGroup
		for i := range 3 {
			p := shard.NewPipe()
			server := &http.Server{Handler: l.serve(i + 1), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
			servers = append(servers, server)
			serving.Go(func() { _ = server.Serve(p) })
			port := uint16(i + 1)
			nodes[port] = p
			o.Targets = append(o.Targets, load.Target{Name: fmt.Sprintf("edge-%d", port), Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), port), Path: "/"})
		}
		o.Dial = func(ctx context.Context, t *load.Target) (net.Conn, error) {
			return nodes[t.Addr.Port()].Dial(ctx, "", "")
		}
		o.Identity.Forwarded = true
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
