package pop_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop"
)

// A PoP in one process reports a reaction for each mitigation that starts, and none for refused requests.
func TestReactions(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer site.Close()
	local, err := pop.StartLocal(pop.LocalOptions{Nodes: 3, Listen: "127.0.0.1:0", Node: pop.Options{
		Rules: parse(t, fivePerClient), Origin: site.URL, Logger: slog.New(slog.DiscardHandler),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = local.Stop(context.Background()) }()
	began := time.Now()
	refused := false
	harness.Until(t, "the client is refused and all nodes know it", patience, time.Millisecond, func() bool {
		conn, err := net.Dial("tcp", local.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.Copy(conn, strings.NewReader(get("a.test")))
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		refused = refused || err == nil && answer.StatusCode == http.StatusTooManyRequests
		return refused && len(local.Reactions()) > 0
	})
	for _, r := range local.Reactions() {
		if r < 0 || r > time.Since(began) {
			t.Errorf("a reaction took %v, but the first request was sent %v ago", r, time.Since(began))
		}
	}
	if n := len(local.Reactions()); n > 3 {
		t.Errorf("%d reactions for one client and three nodes", n)
	}
}
