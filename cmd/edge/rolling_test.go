package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A front gives connections to the ready nodes of a PoP in turn, and to the next one if a node does not accept.
type front struct {
	mu    sync.Mutex // guards nodes
	nodes []*node    // nil if the node must not be asked
	ready []*node
	next  int
}

// set replaces the ith node.
func (f *front) set(i int, n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[i] = n
}

// check polls the readiness of the nodes until ctx is done.
func (f *front) check(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		f.mu.Lock()
		nodes := slices.Clone(f.nodes)
		f.mu.Unlock()
		var ready []*node
		for _, n := range nodes {
			if n == nil {
				continue
			}
			if a, err := try(http.DefaultClient, "http://"+n.metrics+"/readyz"); err == nil && a.StatusCode == http.StatusOK {
				ready = append(ready, n)
			}
		}
		f.mu.Lock()
		f.ready = ready
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

var errNoNode = errors.New("no node accepts")

// dial connects to a node.
func (f *front) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	f.mu.Lock()
	ready := f.ready
	f.next++
	first := f.next
	f.mu.Unlock()
	for i := range ready {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", ready[(first+i)%len(ready)].http)
		if err == nil {
			return conn, nil
		}
	}
	return nil, errNoNode
}

// Every node is stopped and restarted, one after the other, under load over keep-alive connections. No request
// fails, and no mitigation is lost.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, fiftyAnHour)
	var clients []string
	for i := range 10 {
		clients = append(clients, fmt.Sprintf("192.0.2.%d", i))
		p.attack(clients[i])
		p.refused(clients[i])
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	f := &front{nodes: slices.Clone(p.nodes), ready: slices.Clone(p.nodes)}
	running.Go(func() { f.check(ctx) })
	var load sync.WaitGroup
	var asked, failed, refused, dials atomic.Int64
	stop := make(chan struct{})
	for i := range 8 {
		load.Go(func() {
			transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return f.dial(ctx, network, addr)
			}}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: patience}
			// Some clients pause between requests, so their connections are idle for a while.
			tick := time.NewTicker(time.Duration(1+i*i*i) * time.Millisecond)
			defer tick.Stop()
			for request := 0; ; request++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				// The client does not retry a POST when its connection ends.
				r, err := http.NewRequest("POST", "http://pop/", http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				// Forty requests of each client are innocent.
				r.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", i, request/40/250, request/40%250))
				asked.Add(1)
				resp, err := client.Do(r)
				if err != nil {
					failed.Add(1)
					t.Logf("a request failed: %v", err)
					continue
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					refused.Add(1)
				}
				resp.Body.Close()
			}
		})
	}
	for i := range p.nodes {
		p.nodes[i].Terminate()
		f.set(i, nil)
		p.start(i)
		p.nodes[i].ready(t)
		for _, client := range clients {
			if got := p.nodes[i].as(client); got != http.StatusTooManyRequests {
				t.Errorf("node %d, just ready, answers %s with %d", i+1, client, got)
			}
		}
		p.whole()
		f.set(i, p.nodes[i])
		eventually(t, "the front has noticed", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return slices.Contains(f.ready, p.nodes[i])
		})
	}
	close(stop)
	load.Wait()
	t.Logf("%d requests by %d connections", asked.Load(), dials.Load())
	if failed.Load()+refused.Load() > 0 {
		t.Errorf("of %d requests %d failed and %d were not answered with 200; want none", asked.Load(), failed.Load(), refused.Load())
	}
}
