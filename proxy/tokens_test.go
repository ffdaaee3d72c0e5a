package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
)

// tokens returns the rules of docs/tokens.md.
func tokens(t *testing.T) string {
	text, err := os.ReadFile("../docs/tokens.md")
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	rules, _, found := strings.Cut(rest, "```")
	if err != nil || !found {
		t.Fatalf("docs/tokens.md shows no rules: %v", err)
	}
	return rules
}

// A model stands in for a model server. Each answer costs 3000 tokens. A stream has one event a second.
func model(w http.ResponseWriter, r *http.Request) {
	const usage = `"usage": {"prompt_tokens": 20, "total_tokens": 3000}`
	if r.URL.Query().Get("stream") == "" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices": [{"text": %q}], %s}`, strings.Repeat(`"usage": {"total_tokens": 0}`, 2000), usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 5 {
		fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": %d}], \"usage\": null}\n\n", i)
		w.(http.Flusher).Flush()
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
			return
		}
	}
	fmt.Fprintf(w, "data: {\"choices\": [], %s}\n\ndata: [DONE]\n\n", usage)
}

// The rules of docs/tokens.md work as that page says, in HTTP/1.1 and HTTP/2.
func TestDocumentedTokens(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2: ", http2), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c, bodies := piped(t, tokens(t), http2, model), 0
				ask := func(key, query string) (*http.Response, context.CancelFunc) {
					t.Helper()
					ctx, cancel := context.WithCancel(t.Context())
					r := newRequest(t, "POST", "http://a.example/v1/chat/completions?"+query, strings.NewReader("{}"), "Authorization", "Bearer "+key).WithContext(ctx)
					resp, err := c.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { cancel(); resp.Body.Close() })
					return resp, cancel
				}
				// Each event arrives when it is sent.
				resp, _ := ask("a", "stream=1")
				began, lines := time.Now(), bufio.NewScanner(resp.Body)
				for lines.Scan() {
					if strings.Contains(lines.Text(), "delta") && time.Since(began) != time.Duration(bodies)*time.Second {
						t.Errorf("event %d came after %v", bodies, time.Since(began))
					}
					if lines.Text() != "" {
						bodies++
					}
				}
				if bodies != 7 {
					t.Errorf("%d events, want 7", bodies)
				}
				for range 3 {
					resp, _ := ask("a", "")
					if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || len(body) < 50_000 {
						t.Fatalf("%d, %d bytes, %v", resp.StatusCode, len(body), err)
					}
					time.Sleep(50 * time.Millisecond)
				}
				if resp, _ := ask("a", ""); resp.StatusCode != http.StatusTooManyRequests {
					t.Errorf("after 12000 tokens: %d", resp.StatusCode)
				}
				// Clients that leave early are charged the rule's cost.
				for i := range 3 {
					resp, cancel := ask("b", "stream=1")
					if resp.StatusCode != 200 {
						t.Errorf("request %d of another key: %d", i+1, resp.StatusCode)
					}
					_, _ = io.ReadFull(resp.Body, make([]byte, 10))
					cancel()
					time.Sleep(10 * time.Second)
					synctest.Wait()
				}
				if resp, _ := ask("b", ""); resp.StatusCode != http.StatusTooManyRequests {
					t.Errorf("after leaving three times: %d", resp.StatusCode)
				}
			})
		})
	}
}

// Bodies of origins that speak HTTP/2 are read, too.
func TestCostInTheBodyOfHTTP2Origin(t *testing.T) {
	back := httptest.NewUnstartedServer(http.HandlerFunc(model))
	back.Config.Protocols = new(http.Protocols)
	back.Config.Protocols.SetUnencryptedHTTP2(true)
	back.Start()
	defer back.Close()
	rules := "rules: [{id: a, characteristics: [ip], limits: [{threshold: 2999, period: 1h}], mitigation_timeout: 1h, count: {cost_json: usage.total_tokens}}]"
	p, _ := newProxy(t, rules, strings.Replace(back.URL, "http:", "h2c:", 1), nil)
	url := serveProxy(t, p)
	exceed(t, client(t), func() *http.Request { return newRequest(t, "GET", url, nil) })
}

// A long body that is cut off after a member with a cost of its own counts as the rule's cost.
func TestCostInBrokenBody(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2: ", http2), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rules := "rules: [{id: a, characteristics: [ip], limits: [{threshold: 9, period: 1h}], mitigation_timeout: 1h, count: {cost_json: usage.total_tokens, cost: 10}}]"
				c := piped(t, rules, http2, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"text": %q, "echo": {"a": 1, "usage": {"total_tokens": 1}}`, strings.Repeat("x", 20<<10))
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				})
				for _, want := range []int{200, 429} {
					resp, err := c.Do(newRequest(t, "POST", "http://a.example/", nil))
					if err != nil {
						t.Fatal(err)
					}
					if resp.StatusCode != want {
						t.Errorf("status %d, want %d", resp.StatusCode, want)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					time.Sleep(time.Second)
				}
			})
		})
	}
}
