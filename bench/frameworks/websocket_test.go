package frameworks_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	coder "github.com/coder/websocket"
	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/gorilla/websocket"

	"github.com/edgelimit/edge"
)

// Servers of three libraries echo a message. Each finds its own way to the connection.
var echoes = map[string]http.HandlerFunc{
	"gorilla": func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		if kind, text, err := conn.ReadMessage(); err == nil {
			_ = conn.WriteMessage(kind, text)
		}
	},
	"coder": func(w http.ResponseWriter, r *http.Request) {
		conn, err := coder.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		if kind, text, err := conn.Read(r.Context()); err == nil {
			_ = conn.Write(r.Context(), kind, text)
		}
	},
	"gobwas": func(w http.ResponseWriter, r *http.Request) {
		conn, _, _, err := gobwas.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer conn.Close()
		if text, kind, err := wsutil.ReadClientData(conn); err == nil {
			_ = wsutil.WriteServerMessage(conn, kind, text)
		}
	},
}

// WebSocket libraries work behind the middleware, whatever the rules count.
func TestWebSocket(t *testing.T) {
	for library, echo := range echoes {
		for counts, want := range map[string]int{"": 2, "count: {statuses: [401]},": 5} {
			t.Run(library+" "+counts, func(t *testing.T) {
				limiter, err := edge.New(edge.Options{Rules: `rules: [{id: all, ` + counts + ` characteristics: [ip], limits: [{threshold: 1, period: 1h}]}]`})
				if err != nil {
					t.Fatal(err)
				}
				defer limiter.Close(t.Context())
				server := httptest.NewServer(limiter.Middleware(echo))
				defer server.Close()
				echoed := 0
				for range 5 {
					conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
					if err != nil {
						if resp == nil || resp.StatusCode != http.StatusTooManyRequests {
							t.Errorf("the upgrade failed: %v, %+v", err, resp)
						}
						continue
					}
					if err := conn.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
						t.Error(err)
					}
					if _, text, err := conn.ReadMessage(); err != nil && err != io.EOF || string(text) != "hello" {
						t.Errorf("the echo is %q, %v", text, err)
					}
					_ = conn.Close()
					echoed++
				}
				if echoed != want {
					t.Errorf("%d of 5 connections worked, want %d", echoed, want)
				}
			})
		}
	}
}
