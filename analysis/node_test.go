package analysis_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/internal/trace"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// A realNode is a node of a PoP in fake time, reached over HTTP, with an origin that answers as told, and
// shards behind pipes.
type realNode struct {
	*pop.Node
	t      *testing.T
	front  *shard.Pipe // accepts clients
	answer int         // status of the origin
	end    func()
}

// startNode starts a node in a bubble. A simulation without a lag counts each request before the next one, and
// has times in microseconds, like all arithmetic of limits. So the node flushes after a nanosecond, and its
// clock shows whole microseconds.
func startNode(t *testing.T, rules *rule.Set, shards int) *realNode {
	t.Helper()
	n := &realNode{t: t, front: shard.NewPipe()}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	pipes := map[string]*shard.Pipe{}
	for i := range shards {
		server := shard.New(shard.Options{})
		pipe := shard.NewPipe()
		pipes[fmt.Sprintf("s%d:11211", i+1)] = pipe
		serving.Go(func() { _ = server.Serve(ctx, pipe) })
	}
	var addrs []string
	for addr := range pipes {
		addrs = append(addrs, addr)
	}
	node, err := pop.New(pop.Options{
		Name: "n1", Secret: "a secret of the node", Rules: rules,
		Origin: "http://origin", OriginOptions: proxy.OriginOptions{Dial: harness.Origin(n)},
		Shards: addrs, ShardOptions: wire.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return pipes[addr].Dial(ctx, network, addr)
		}},
		FlushInterval: time.Nanosecond,
		Now:           func() time.Time { return time.Now().Truncate(time.Microsecond) },
		Limits:        http1.Limits{BodyTimeout: -1},
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	if err := node.Serve(n.front); err != nil {
		t.Fatal(err)
	}
	n.Node = node
	n.end = func() {
		if err := node.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		cancel()
		serving.Wait()
	}
	return n
}

// RoundTrip answers for the origin.
func (n *realNode) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: n.answer, Header: http.Header{"From": {"origin"}}, Body: http.NoBody, Request: r}, nil
}

// ask sends the request of e, and returns the verdict as a client sees it.
func (n *realNode) ask(e *accesslog.Entry, from netip.Addr) (seen string) {
	n.answer = e.Status
	r := httptest.NewRequest(e.Method, "http://"+e.Host+e.Path+"?"+e.Query, nil)
	r.RemoteAddr = netip.AddrPortFrom(from, 1234).String()
	for _, f := range e.Header {
		r.Header.Add(f.Name, f.Value)
	}
	switch answer := harness.Ask(n.t, n.front, r); {
	case answer == "":
		return "closed"
	case strings.Contains(answer, "\r\nFrom: origin\r\n"):
		return "origin"
	case strings.HasPrefix(answer, "HTTP/1.1 200 "):
		return "shadow_banned"
	case strings.HasPrefix(answer, "HTTP/1.1 429 "):
		return "blocked"
	default:
		return strings.Fields(answer)[1]
	}
}

// seenOf returns a verdict as a client sees it.
func seenOf(v limit.Verdict) string {
	switch v {
	case limit.Passed, limit.Logged, limit.Allowed:
		return "origin"
	case limit.Denied:
		return "403"
	}
	return v.String()
}

// verdicts returns the number of requests by rule and verdict, from the node's metrics.
func (n *realNode) verdicts(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := n.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "edge_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if v := m.GetCounter().GetValue(); v > 0 {
				all[labels["rule"]+" "+labels["verdict"]] = v
			}
		}
	}
	return all
}

// sameAsNode plays entries, whose times are relative to the beginning, to a node and to a simulation of one, and
// compares their decisions.
func sameAsNode(t *testing.T, rules string, shards int, entries []accesslog.Entry) (verdicts map[string]float64) {
	t.Helper()
	set := parse(t, rules)
	bubble.Test(t, func(t *testing.T) {
		begin := time.Now()
		node := startNode(t, set, shards)
		defer node.end()
		simulation, err := analysis.NewSimulation(analysis.PoPOptions{}, set)
		if err != nil {
			t.Fatal(err)
		}
		verdicts = map[string]float64{}
		var last int64
		ties := time.Duration(0)
		for i := range entries {
			e := entries[i]
			if ties++; e.Time > last || i == 0 {
				last, ties = e.Time, 0
			}
			// Requests in the same microsecond come one after the other.
			time.Sleep(time.Until(begin.Add(time.Duration(e.Time)*time.Microsecond + 2*ties)))
			got := node.ask(&e, clientAddr(&e))
			e.Time += begin.UnixMicro()
			d := simulation.Decide(&e)
			if want := seenOf(d.Verdict); got != want {
				t.Fatalf("request %d, %v after the first: the node's client sees %s, the simulation says %v", i+1, time.Duration(last)*time.Microsecond, got, d.Verdict)
			}
			by := ""
			if d.Rule != nil {
				by = d.Rule.ID
			}
			verdicts[by+" "+d.Verdict.String()]++
		}
		if diff := cmp.Diff(node.verdicts(t), verdicts); diff != "" {
			t.Errorf("verdicts by rule (-node +simulation):\n%s", diff)
		}
	})
	return verdicts
}

// clientAddr returns the address of a client of the node: its own, or one derived from its number.
func clientAddr(e *accesslog.Entry) netip.Addr {
	if e.Addr.IsValid() {
		return e.Addr
	}
	n, _ := strconv.Atoi(e.Client)
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

const manyRules = `rules:
  - {id: all, characteristics: [ip], limits: [{threshold: 40, period: 10s}, {threshold: 90, period: 1m}], mitigation_timeout: 20s}
  - {id: login, match: {methods: [POST], paths: [/login]}, count: {statuses: [401, 403]}, characteristics: [ip], limits: [{threshold: 5, period: 30s}], mitigation_timeout: 2m}
  - {id: key, match: {paths: [/api/*]}, characteristics: ["header:x-api-key"], limits: [{threshold: 25, period: 10s}]}
  - {id: hidden, match: {paths: [/hidden]}, characteristics: [ip, "query:q"], limits: [{threshold: 3, period: 1s}], mitigation_timeout: 5s, action: shadow_ban}
  - {id: host, match: {hosts: ["*.example.org"]}, characteristics: [host, ip], limits: [{threshold: 10, period: 5s}], mitigation_timeout: 10s, action: close}
  - {id: watched, characteristics: [ip, path], limits: [{threshold: 6, period: 2s}], mitigation_timeout: 3s, action: log}
deny: [192.0.2.13]
allow: [192.0.2.14]
`

// bursts returns requests of clients that send at their own pace and in bursts.
func bursts(seed uint64, n int) (entries []accesslog.Entry) {
	random := rand.New(rand.NewPCG(seed, 1))
	now := int64(0)
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for len(entries) < n {
		now += int64(random.ExpFloat64() * 200e3)
		e := accesslog.Entry{
			Addr:   netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(20))}),
			Method: pick("GET", "GET", "POST"), Host: pick("example.com", "a.example.org", "B.Example.org:80"),
			Path: pick("/", "/login", "/api/x", "/api/%79", "/hidden"), Query: pick("", "q=1", "q=2"),
			Status: []int{200, 401, 403, 500}[random.IntN(4)],
		}
		if random.IntN(2) == 0 {
			e.Header = []accesslog.Field{{Name: "X-Api-Key", Value: pick("a", "b")}}
		}
		if random.IntN(4) == 0 {
			e.Addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: byte(random.IntN(2)), 15: byte(random.IntN(100))})
		}
		e.Client = e.Addr.String()
		burst := 1
		if random.IntN(20) == 0 {
			burst = 1 + random.IntN(80)
		}
		pace := random.Int64N(100e3)
		for range burst {
			e.Time = now
			entries = append(entries, e)
			now += random.Int64N(1 + pace)
		}
		if random.IntN(200) == 0 {
			now += random.Int64N(200e6)
		}
		if random.IntN(3) == 0 {
			now = (now + 999_999) / 1e6 * 1e6 // many events at whole seconds
		}
	}
	return entries
}

// A simulated node without a lag makes the same decision about every request as a real one.
func TestSimulationEqualsNode(t *testing.T) {
	all := map[string]float64{}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			for verdict, n := range sameAsNode(t, manyRules, 2, bursts(seed, 2000)) {
				all[verdict] += n
			}
		})
	}
	for _, want := range []string{" passed", " allowed", " denied", "all blocked", "login blocked", "key blocked", "hidden shadow_banned", "host closed", "watched logged"} {
		if all[want] < 20 {
			t.Errorf("only %v requests were %q, so the test is too weak: %v", all[want], want, all)
		}
	}
}

// The same holds for the first requests of real traces, whose times are whole seconds.
func TestSimulationEqualsNodeOnTraces(t *testing.T) {
	files, err := filepath.Glob(trace.Shared(t, "traces", "*.tsv.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	if !harness.WithoutRaceDetector(t) {
		return // TestSimulationEqualsNode has it
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tsv.gz"), func(t *testing.T) {
			verdicts := sameAsNode(t, `rules:
  - {id: short, characteristics: [ip], limits: [{threshold: 10, period: 10s}]}
  - {id: long, characteristics: [ip], limits: [{threshold: 50, period: 1m}, {threshold: 300, period: 15m}], mitigation_timeout: 10m}
`, 1, firstOf(t, file, 800))
			if verdicts["short blocked"] == 0 {
				t.Errorf("nothing was blocked: %v", verdicts)
			}
		})
	}
}

// firstOf returns the first requests of a trace. Their times are relative to the first one.
func firstOf(t *testing.T, file string, n int) (entries []accesslog.Entry) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	first := int64(0)
	for lines.Scan() && len(entries) < n {
		at, client, _ := strings.Cut(lines.Text(), "\t")
		second, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if entries == nil {
			first = second
		}
		entries = append(entries, accesslog.Entry{Time: (second - first) * 1e6, Client: client, Method: "GET", Host: "example.com", Path: "/", Status: 200})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return slices.Clip(entries)
}
