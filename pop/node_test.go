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
)

// Trusted proxies may use the PROXY protocol even if the listener was passed to Serve.
func TestServeProxyProtocol(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	}))
	defer origin.Close()
	n := startNode(t, "rules: []", func(o *pop.Options) {
		o.Origin, o.ProxyProtocol, o.TrustedProxies = origin.URL, true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
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
	_ = conn.SetDeadline(time.Now().Add(patience))
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

// A PROXY header with UNIX addresses does not merge all clients of a proxy into one: the request then comes from
// the proxy, whose X-Forwarded-For is trusted. The node logs this once and counts it.
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
			t.Errorf("%q: %s, the origin got %q; want %q", tt[0], resp.Status, body, tt[1])
		}
	}
	if lines := log.take(); strings.Count(lines, "UNIX") != 1 {
		t.Errorf("log:\n%swant one line about UNIX addresses", lines)
	}
	if n, err := sum(w.Gatherer(), "edge_proxy_protocol_unix_total"); n != 2 || err != nil {
		t.Errorf("%v connections are counted, %v; want 2", n, err)
	}
}

// Denied clients are refused, whatever they request: net/http answers nothing on its own.
func TestEveryRequestIsDecided(t *testing.T) {
	w := startWired(t, "rules: []\ndeny: [127.0.0.0/8]", nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
	for _, line := range []string{"GET /", "OPTIONS *", "OPTIONS /", "CONNECT a.example:80", "TRACE /"} {
		resp, _ := w.ask(line + " HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s, want 403", line, resp.Status)
		}
	}
}

// startSharing starts a node that finds shards by gossip.
func startSharing(t *testing.T, name string, join ...string) *pop.Node {
	t.Helper()
	return startNode(t, "rules: []", func(o *pop.Options) {
		o.Name, o.ShardListen, o.Gossip = name, "127.0.0.1:0", pop.GossipOptions{Listen: "127.0.0.1:0", Join: join}
	})
}

// A node counts in its own shard from the beginning, even while it looks for the shards of others.
func TestOwnShardFromTheStart(t *testing.T) {
	n := startSharing(t, "n1")
	if in, err := sum(n.Gatherer(), "edge_shard_in_ring/"+n.Addr("shard").String()); in != 1 || err != nil {
		t.Errorf("edge_shard_in_ring sums to %v, %v; want 1", in, err)
	}
}

// The shard of a leaving node answers until no node counts in it.
func TestShardAnswersUntilUnused(t *testing.T) {
	stays := startSharing(t, "n1")
	leaves := startSharing(t, "n2", stays.Addr("gossip").String())
	awaitRing := func(want float64) {
		t.Helper()
		await(t, fmt.Sprintf("there are %v shards in the ring", want), func() bool {
			in, err := sum(stays.Gatherer(), "edge_shard_in_ring")
			return in == want && err == nil
		})
	}
	awaitRing(2)
	stopped := make(chan error, 1)
	go func() { stopped <- leaves.Stop(t.Context()) }()
	awaitRing(1)
	conn, err := net.Dial("tcp", leaves.Addr("shard").String())
	if err != nil {
		t.Fatalf("the shard ended before the nodes stopped using it: %v", err)
	}
	_ = conn.Close()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
