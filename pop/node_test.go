package pop_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/rule"
)

// Trusted proxies may use the PROXY protocol also where a listener is given to Serve.
func TestServeProxyProtocol(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	}))
	defer origin.Close()
	set, err := rule.Parse("rules.yaml", []byte("rules: []"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := pop.New(pop.Options{
		Name: "n1", Rules: set, Origin: origin.URL, ProxyProtocol: true,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	defer n.Stop(t.Context())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Serve(ln); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(conn, "PROXY TCP4 203.0.113.1 127.0.0.1 1000 80\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(body) != "203.0.113.1" {
		t.Errorf("%s %q, %v; want 200 with 203.0.113.1", resp.Status, body, err)
	}
}

// A PROXY header with UNIX addresses does not make all clients of a proxy one: the proxy is
// the peer then, and trusted. It is logged once and counted.
func TestProxyProtocolWithUnixAddresses(t *testing.T) {
	log := new(eventLog)
	w := startWired(t, "rules: []", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	}, func(o *pop.Options) {
		o.ProxyProtocol, o.TrustedProxies = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o.Logger = slog.New(&eventHandler{log: log, start: time.Now(), node: "n1"})
	})
	var addresses [216]byte
	copy(addresses[:], "/run/client.sock")
	copy(addresses[108:], "/run/front.sock")
	header := "\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8" + string(addresses[:])
	for _, tt := range [][2]string{{"", "127.0.0.1"}, {"X-Forwarded-For: 203.0.113.7\r\n", "203.0.113.7, 127.0.0.1"}} {
		resp, body := w.ask(header + strings.Replace(get("a.example"), "Connection", tt[0]+"Connection", 1))
		if resp.StatusCode != http.StatusOK || body != tt[1] {
			t.Errorf("%q: %s, the origin is told %q; want %q", tt[0], resp.Status, body, tt[1])
		}
	}
	if lines := log.take(); strings.Count(lines, "UNIX") != 1 {
		t.Errorf("log:\n%swant one line about UNIX addresses", lines)
	}
	if n, err := sum(w.Gatherer(), "edge_proxy_protocol_unix_total"); n != 2 || err != nil {
		t.Errorf("%v connections are counted, %v; want 2", n, err)
	}
}

// Clients that are refused are refused whatever they ask: net/http answers nothing for the
// node.
func TestEveryRequestIsDecided(t *testing.T) {
	set, err := rule.Parse("rules.yaml", []byte("rules: []\ndeny: [127.0.0.0/8]"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := pop.New(pop.Options{Name: "n1", Rules: set, Origin: "http://127.0.0.1:1", Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	defer n.Stop(t.Context())
	for _, line := range []string{"GET /", "OPTIONS *", "OPTIONS /", "CONNECT a.example:80", "TRACE /"} {
		conn, err := net.Dial("tcp", n.Addr("http").String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n", line)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s, want 403", line, resp.Status)
		}
		_ = conn.Close()
	}
}

// startSharing starts a node whose shard is found by gossip.
func startSharing(t *testing.T, name string, join ...string) *pop.Node {
	t.Helper()
	set, err := rule.Parse("rules.yaml", []byte("rules: []"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := pop.New(pop.Options{
		Name: name, Rules: set, Origin: "http://127.0.0.1:1", Secret: scenarioSecret, ShardListen: "127.0.0.1:0",
		Gossip: &pop.GossipOptions{Listen: "127.0.0.1:0", Join: join}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	return n
}

// A node counts in its own shard from the beginning, also where it looks for those of others.
func TestOwnShardFromTheBeginning(t *testing.T) {
	n := startSharing(t, "n1")
	defer n.Stop(t.Context())
	if in, err := sum(n.Gatherer(), "edge_shard_in_ring/"+n.Addr("shard").String()); in != 1 || err != nil {
		t.Errorf("of the node's shard %v are in the ring, %v; want 1", in, err)
	}
}

// The shard of a node that leaves answers until nobody counts in it.
func TestShardAnswersUntilItIsLeft(t *testing.T) {
	stays := startSharing(t, "n1")
	defer stays.Stop(t.Context())
	leaves := startSharing(t, "n2", stays.Addr("gossip").String())
	awaitRing := func(want float64) {
		t.Helper()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for giveUp := time.After(2 * time.Minute); ; {
			if in, err := sum(stays.Gatherer(), "edge_shard_in_ring"); in == want && err == nil {
				return
			}
			select {
			case <-tick.C:
			case <-giveUp:
				t.Fatalf("there are never %v shards in the ring", want)
			}
		}
	}
	awaitRing(2)
	stopped := make(chan error, 1)
	go func() { stopped <- leaves.Stop(t.Context()) }()
	awaitRing(1)
	conn, err := net.Dial("tcp", leaves.Addr("shard").String())
	if err != nil {
		t.Fatalf("a shard is gone when the others leave it: %v", err)
	}
	_ = conn.Close()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
