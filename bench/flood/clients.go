package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// A flooder sends requests of many addresses in turn, over some connections, each of which pauses after a
// response.
type flooder struct {
	conns, addresses int
	pause            time.Duration
}

// run floods a node until ctx is done.
func (f flooder) run(ctx context.Context, node string, conns int) {
	dir, remove := harness.TempDir()
	defer remove()
	script := filepath.Join(dir, "flood.lua")
	text := fmt.Sprintf(`local n = 0
request = function()
  n = (n + 1) %% %d
  wrk.headers["X-Forwarded-For"] = string.format("10.%%d.%%d.%%d", n / 65536, n / 256 %% 256, n %% 256)
  return wrk.format()
end
`, f.addresses)
	if f.pause > 0 {
		text += fmt.Sprintf("delay = function() return %d end\n", f.pause.Milliseconds())
	}
	harness.Check(os.WriteFile(script, []byte(text), 0o600))
	wrk := harness.Start("", "wrk", "-t1", fmt.Sprint("-c", conns), "-d", "600s", "-s", script, "http://"+node+"/")
	<-ctx.Done()
	wrk.End()
}

// newClient returns a client that keeps as many connections as it needs.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: 10 * time.Second}
}

// ask sends a client's requests at a rate, to the nodes in turn, without waiting for responses.
func ask(client string, rate int, lasts time.Duration, nodes ...string) (r run) {
	http := newClient()
	defer http.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range int(lasts.Seconds() * float64(rate)) {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		wg.Go(func() {
			status := get(http, nodes[i%len(nodes)], client)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status == 200:
				r.passed++
			case status != 429:
				r.unanswered++
			case r.refused == 0:
				r.refused = time.Since(begin)
			}
		})
	}
	wg.Wait()
	return r
}

func get(c *http.Client, node, client string) (status int) {
	r, err := http.NewRequest("GET", "http://"+node+"/", nil)
	harness.Check(err)
	r.Header.Set("X-Forwarded-For", client)
	resp, err := c.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// people sends the requests of 1,500 clients, about one a second each.
func people(nodes []string, lasts time.Duration) {
	http := newClient()
	defer http.CloseIdleConnections()
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, 64)
	begin := time.Now()
	for i := 0; time.Since(begin) < lasts; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / 1500)))
		room <- struct{}{}
		wg.Go(func() {
			get(http, nodes[i%len(nodes)], fmt.Sprintf("10.1.%d.%d", i%1500/256, i%1500%256))
			<-room
		})
	}
}
