package proxy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/spop"
)

// message returns a message with arguments, given as name, value, …; src is an address.
func message(name string, args ...string) *spop.Message {
	m := &spop.Message{Name: []byte(name)}
	for i := 0; i < len(args); i += 2 {
		v := spop.Value{Bytes: []byte(args[i+1])}
		switch args[i] {
		case "src":
			v = spop.Value{Addr: netip.MustParseAddr(args[i+1])}
		case "status":
			_, _ = fmt.Sscan(args[i+1], &v.Int)
		}
		m.Args = append(m.Args, spop.Arg{Name: []byte(args[i]), Value: v})
	}
	return m
}

// variables are those that an Agent has set, each with a space before it.
type variables struct{ strings.Builder }

func (v *variables) SetString(name, value string)      { fmt.Fprintf(v, " %s=%q", name, value) }
func (v *variables) SetUint(name string, value uint32) { fmt.Fprintf(v, " %s=%d", name, value) }
func (v *variables) SetTrue(name string)               { fmt.Fprintf(v, " %s=true", name) }

func TestAgent(t *testing.T) {
	reg := prometheus.NewRegistry()
	p, log := newProxy(t, `rules:
  - {id: login, match: {hosts: [example.com], methods: [POST], paths: [/login]}, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 3, period: 1m}], mitigation_timeout: 1m}
  - {id: points, match: {paths: [/points]}, count: {cost_header: X-Points}, characteristics: [ip], limits: [{threshold: 100, period: 168h}], mitigation_timeout: 1m}
  - {id: keys, match: {paths: [/keys]}, characteristics: [{header: x-api-key, missing: skip}, {query: q, missing: skip}], limits: [{threshold: 3, period: 1m}], mitigation_timeout: 1m}
deny: [203.0.113.0/24]`, "http://127.0.0.1:1", func(o *proxy.Options) {
		o.Trusted, o.Registerer = []netip.Prefix{localhost}, reg
	})
	agent := p.NewAgent()
	ask := func(m *spop.Message) string {
		var v variables
		agent.Handle(m, &v)
		return strings.TrimSpace(v.String())
	}
	until := func(want string, m func() *spop.Message) {
		t.Helper()
		got := ""
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
			if got = ask(m()); strings.HasPrefix(got, want) {
				if !strings.Contains(got, ` refusal_id="`) {
					t.Errorf("%s, want refusal_id", got)
				}
				return
			}
		}
		t.Fatalf("%s, want %s", got, want)
	}
	login := []string{"method", "POST", "host", "Example.com:80", "path", "/login?a=b"}
	for range 20 {
		ask(message("edge-report", append(login, "src", "192.0.2.1", "status", "200")...))
		ask(message("edge-report", append(login, "src", "192.0.2.2", "status", "401", "verdict", "blocked")...))
		ask(message("edge-report", append(login, "src", "192.0.2.3", "status", "401", "verdict", "passed")...))
	}
	until(`verdict="blocked" refused=true status=429 rule="login" retry_after="`, func() *spop.Message { return message("edge-check", append(login, "src", "192.0.2.3")...) })
	for _, innocent := range []string{"192.0.2.1", "192.0.2.2"} {
		if got, want := ask(message("edge-check", append(login, "src", innocent)...)), `verdict="passed" ratelimit_policy="\"login\";q=3;w=60"`; got != want {
			t.Errorf("%s: %s, want %s", innocent, got, want)
		}
	}
	points := []string{"method", "GET", "path", "/points"}
	for client, cost := range map[string]string{"192.0.2.5": "100", "192.0.2.6": "101"} {
		ask(message("edge-report", append(points, "src", client, "status", "200", "cost", cost)...))
	}
	until(`verdict="blocked" refused=true status=429 rule="points"`, func() *spop.Message { return message("edge-check", append(points, "src", "192.0.2.6")...) })
	if got := ask(message("edge-check", append(points, "src", "192.0.2.5")...)); !strings.HasPrefix(got, `verdict="passed"`) {
		t.Errorf("at the threshold: %s", got)
	}
	keys := []string{"method", "GET", "host", "a", "path", "/keys?q=1", "src", "192.0.2.4", "headers", "\x09x-api-key\x01k\x00\x00"}
	until(`verdict="blocked" refused=true status=429 rule="keys"`, func() *spop.Message { return message("edge-check", keys...) })
	keys[9] = "\x09x-api-key\x01o\x00\x00"
	for _, test := range []struct {
		name string
		m    *spop.Message
		want string
	}{
		{"another key", message("edge-check", keys...), `verdict="passed"`},
		{"denied", message("edge-check", "method", "GET", "path", "/", "src", "203.0.113.1"), `remember=true verdict="denied" refused=true status=403 refusal_id="`},
		{"denied behind a trusted proxy", message("edge-check", "method", "GET", "path", "/", "src", "127.0.0.1", "headers", "\x0fx-forwarded-for\x0b203.0.113.2\x00\x00"), `verdict="denied" refused=true status=403`},
		{"malformed", message("edge-check", "method", "GET", "path", "/%zz", "src", "192.0.2.1"), `verdict="malformed" refused=true status=400`},
		{"CONNECT", message("edge-check", "method", "CONNECT", "path", "", "src", "192.0.2.1"), `verdict="malformed" refused=true status=400`},
		{"without src", message("edge-check", "method", "GET", "path", "/"), ""},
		{"a target without a path", message("edge-check", "method", "GET", "path", "", "src", "203.0.113.1"), `remember=true verdict="denied" refused=true status=403`},
		{"without a path", message("edge-check", "method", "GET", "src", "192.0.2.1"), ""},
		{"another message", message("other", "method", "GET", "path", "/", "src", "192.0.2.1"), ""},
	} {
		if got := ask(test.m); got != test.want && (test.want == "" || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if got := sum(t, reg, "edge_check_undecided_total"); got != 2 {
		t.Errorf("edge_check_undecided_total = %v, want 2", got)
	}
	var refused []string
	for _, peer := range []net.Addr{&net.UnixAddr{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}} {
		refused = append(refused, agent.RefusePeer(peer))
	}
	if diff := cmp.Diff([]string{"", "", "this address is not a trusted proxy: add it to the node's trusted_proxy"}, refused); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(log.String(), "no method, path or src") {
		t.Errorf("log: %s", log)
	}
}

// Connections over SPOP count among those of clients, and so do frames that are incomplete.
func TestSPOPConnectionsAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	p, _ := newProxy(t, noRules, "http://127.0.0.1:1", func(o *proxy.Options) {
		o.Registerer, o.Connections, o.ClientConnections, o.ClientHeaderMemory = reg, 100, 10, 30<<10
	})
	agent := p.NewAgent()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := spop.NewServer(ln, spop.Options{Handle: agent.Handle, Refuse: agent.RefusePeer, Add: agent.Add, HelloTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	go server.Run()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(ctx)
	})
	for range 20 {
		conn := dialRaw(t, "http://"+ln.Addr().String())
		_, _ = conn.Write([]byte("\x00\x00\x01\x00\x01")) // the beginning of a hello; the connection may be closed
	}
	harness.Until(t, "7 connections with a buffer of 4 KiB each, of 20", patience, time.Millisecond, func() bool {
		return sum(t, reg, "edge_header_memory_bytes") == 7*4096 && sum(t, reg, "edge_connections_closed_total") == 13
	})
}
