//go:build linux

package chart_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"

	"github.com/edgelimit/edge/internal/harness"
)

// rules refuse a client that sends more than 20 requests a minute. Clients are told apart by a header.
const rules = `rules:
  - id: client
    characteristics: ["header:x-client"]
    limits: [{threshold: 20, period: 1m}]
    action: block
    mitigation_timeout: 1h
`

// startOrigin starts the Service shop. It answers /slow after its header, in three seconds.
func startOrigin(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", gateway+":80")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			_ = http.NewResponseController(w).Flush()
			time.Sleep(3 * time.Second)
		}
		_, _ = io.WriteString(w, "ok")
	})}
	go func() { _ = server.Serve(ln) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
}

// A client sends requests to a Service. Each new connection is to the next of the pods that load balancers know.
type client struct {
	*http.Transport
	next atomic.Uint32
}

func (c *cluster) newClient(service string, configure func(*http.Transport)) *client {
	made := &client{}
	made.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		all := c.endpoints(service)
		if len(all) == 0 {
			return nil, errors.New("no pod is ready")
		}
		port := findPort(&c.release.StatefulSets["edge"].Spec.Template, c.release.Services[service].Spec.Ports[0].TargetPort)
		addr := net.JoinHostPort(all[int(made.next.Add(1))%len(all)], fmt.Sprint(port))
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}}
	configure(made.Transport)
	return made
}

// post sends a request that no client repeats, and returns the status of the whole answer.
func (c *client) post(path, name string) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shop.example"+path, io.NopCloser(strings.NewReader("x")))
	if err != nil {
		return 0, err
	}
	for field, value := range map[string]string{
		"X-Client": name, "X-Forwarded-For": "192.0.2.1", "X-Forwarded-Method": "GET", "X-Forwarded-Host": "shop.example", "X-Forwarded-Uri": "/",
	} {
		request.Header.Set(field, value) // for queries, as Traefik sends them
	}
	resp, err := c.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// A rolling restart of all nodes and all shards at the same time, and a node that comes and goes, fail no request of an
// innocent client, whether its connections are kept, new, HTTP/2 or busy with a slow answer, and no query of a proxy
// that asks. They let no request of a mitigated client pass.
func TestRollout(t *testing.T) {
	if !isolated(t) {
		return
	}
	startOrigin(t)
	c := startCluster(t, mustRender(t, filepath.Join(chartDir, "ci", "memcached.yaml"), values{
		"rules": rules, "check": values{"enabled": true}, "trustedProxies": []any{gateway},
		"networkPolicy": values{"askers": []any{values{"podSelector": values{}}}},
	}), nil)
	nodes, shards := c.release.StatefulSets["edge"], c.release.StatefulSets["edge-memcached"]
	harness.Until(t, "the load balancer knows three nodes", harness.Patience, 50*time.Millisecond, func() bool { return len(c.endpoints("edge")) == 3 })

	// The attacker is refused by all nodes.
	attacker := c.newClient("edge", func(t *http.Transport) { t.DisableKeepAlives = true })
	refused := 0
	harness.Until(t, "all nodes refuse the attacker", harness.Patience, 5*time.Millisecond, func() bool {
		status, err := attacker.post("/", "attacker")
		if err != nil {
			t.Fatal(err)
		}
		refused++
		if status != http.StatusTooManyRequests {
			refused = 0
		}
		return refused == 6 // twice by each
	})

	var sent, passed, failed atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	send := func(service, path, name string, want int, configure func(*http.Transport)) {
		client := c.newClient(service, configure)
		load.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				as := name
				if as == "" {
					as = rand.Text() // a client of its own
				}
				status, err := client.post(path, as)
				sent.Add(1)
				if err != nil || status != want {
					failed.Add(1)
					t.Errorf("%s as %s: status %d, %v; want %d", path, as, status, err, want)
				} else if status == http.StatusOK {
					passed.Add(1)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	kept := func(*http.Transport) {}
	fresh := func(t *http.Transport) { t.DisableKeepAlives = true }
	http2 := func(t *http.Transport) {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	for range 3 {
		send("edge", "/", "", http.StatusOK, kept)
		send("edge", "/", "", http.StatusOK, fresh)
		send("edge", "/slow", "", http.StatusOK, kept)
		send("edge", "/slow", "", http.StatusOK, http2)
	}
	send("edge", "/", "", http.StatusOK, http2)
	for _, way := range []func(*http.Transport){kept, fresh} {
		send("edge", "/", "attacker", http.StatusTooManyRequests, way)
		send("edge-check", "/check", "", http.StatusOK, way)
		send("edge-check", "/check", "attacker", http.StatusTooManyRequests, way)
	}

	before := map[string]string{}
	for _, p := range c.list() {
		before[p.name] = p.ip
	}
	var order []string
	var both sync.WaitGroup
	both.Go(func() { c.rollout(shards, func(*pod) {}) })
	both.Go(func() {
		// From its first moment as a ready node, a node refuses the attacker.
		refuses := func(p *pod) {
			direct := &client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(p.ip, "8080"))
			}}}
			defer direct.CloseIdleConnections()
			if status, err := direct.post("/", "attacker"); status != http.StatusTooManyRequests {
				t.Errorf("%s is ready and answers the attacker %d, %v", p.name, status, err)
			}
		}
		c.rollout(nodes, func(p *pod) {
			order = append(order, p.name)
			refuses(p)
		})
		// The autoscaler adds a node, and removes it again.
		added := c.start(nodes, c.release.replicas(nodes))
		c.awaitReady(added)
		refuses(added)
		harness.Until(t, "the load balancer knows four nodes", harness.Patience, 50*time.Millisecond, func() bool { return len(c.endpoints("edge")) == 4 })
		c.delete(added)
	})
	both.Wait()
	stop()
	load.Wait()

	if want := []string{"edge-2", "edge-1", "edge-0"}; !reflect.DeepEqual(order, want) {
		t.Errorf("restarted %v, want %v", order, want)
	}
	for _, p := range c.list() {
		if before[p.name] == p.ip {
			t.Errorf("%s was not restarted", p.name)
		}
		kinds := []string{"liveness", "readiness"}
		if p.spec.Containers[0].StartupProbe != nil {
			kinds = append(kinds, "startup")
		}
		c.mu.Lock()
		for _, kind := range kinds {
			if p.probes[kind] == 0 {
				t.Errorf("%s: the %s probe was not called", p.name, kind)
			}
		}
		c.mu.Unlock()
	}
	for _, name := range order {
		harness.Until(t, name+" sees three nodes", harness.Patience, 100*time.Millisecond, func() bool {
			_, text, err := get(context.Background(), c.pod(name).url(9180)+"/metrics")
			return err == nil && strings.Contains(text, "\nedge_gossip_nodes 3\n")
		})
	}
	t.Logf("%d requests, of which %d passed and %d failed", sent.Load(), passed.Load(), failed.Load())
}

// A change of the rules changes a ConfigMap and no pod. Once the kubelet has replaced the files, all nodes load them
// without a restart, and keep the former ones if they are invalid.
func TestRulesReload(t *testing.T) {
	if !isolated(t) {
		return
	}
	file := filepath.Join(chartDir, "ci", "memcached.yaml")
	c := startCluster(t, mustRender(t, file, values{"rules": rules}), nil)
	nodes := c.release.StatefulSets["edge"]
	all := func(event, url, want string) {
		t.Helper()
		for i := range c.release.replicas(nodes) {
			p := c.pod(fmt.Sprintf("edge-%d", i))
			harness.Until(t, p.name+" "+event, harness.Patience, 100*time.Millisecond, func() bool {
				status, text, err := get(context.Background(), p.url(9180)+url)
				return err == nil && status == http.StatusOK && strings.Contains(text, want)
			})
		}
	}
	ask := func(name string) {
		t.Helper()
		next := mustRender(t, file, values{"rules": strings.Replace(rules, "id: client", name, 1)})
		if !reflect.DeepEqual(next.StatefulSets["edge"].Spec, nodes.Spec) {
			t.Error("other rules change the StatefulSet, and so restart the nodes")
		}
		c.update(nodes, "edge-rules", next.ConfigMaps["edge-rules"].Data)
	}
	all("has the rules", "/metrics", `edge_requests_total{rule="client",verdict="blocked"}`)
	ask("id: second")
	all("has the second rules", "/metrics", `edge_requests_total{rule="second",verdict="blocked"}`)
	ask("identity: third")
	all("reports the error", "/readyz", `cannot reload files, so their previous versions stay in force: /etc/edge/rules/rules.yaml:2:5: `)
	all("keeps the second rules", "/metrics", "\nedge_rules_last_reload_successful 0\n")
	ask("id: fourth")
	all("has the fourth rules", "/metrics", `edge_requests_total{rule="fourth",verdict="blocked"}`)
	all("reports no error", "/metrics", "\nedge_rules_last_reload_successful 1\n")
}

// With each of the values, and with IPv6, all pods start and become ready, by their own probes. Nodes find each other and count in the
// shards, and commands work in their pods.
func TestStart(t *testing.T) {
	if !isolated(t) {
		return
	}
	cert, key := certificate(t)
	keys := mustRender(t, filepath.Join(chartDir, "ci", "redis.yaml"), nil).Secrets["edge-keys"].Data
	keys["ca.pem"] = cert
	for _, file := range valuesFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			r := mustRender(t, file, nil)
			c := startCluster(t, r, map[string]map[string][]byte{
				"edge-secret": keys, "edge-rules-from-git": {"rules.yaml": []byte(rules)}, "shop-tls": {"tls.crt": cert, "tls.key": key},
			})
			c.check()
		})
	}
	t.Run("ipv6", func(t *testing.T) {
		startCluster(t, mustRender(t, filepath.Join(chartDir, "ci", "memcached.yaml"), values{"ipv6": true}), nil).check()
	})
}

// A second release, with the values in docs/envoy-gateway.md, joins the PoP of the first.
func TestTwoReleases(t *testing.T) {
	if !isolated(t) {
		return
	}
	r := mustRender(t, filepath.Join(chartDir, "ci", "memcached.yaml"), nil)
	v, err := common.ReadValues(documented(t)[4])
	if err != nil {
		t.Fatal(err)
	}
	second, err := renderAs(t, "edge-envoy", v)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.StatefulSets, second.StatefulSets)
	maps.Copy(r.Services, second.Services)
	startCluster(t, r, nil).check()
}

// check checks that the ports of all pods are open, that each node sees the others and counts a request, and that
// commands work in its pod.
func (c *cluster) check() {
	nodes := 0
	for _, s := range c.release.sorted() {
		if s.Spec.Template.Labels["app.kubernetes.io/component"] == "node" {
			nodes += c.release.replicas(s)
		}
	}
	for _, p := range c.list() {
		for _, port := range p.spec.Containers[0].Ports {
			if port.Protocol == "UDP" {
				continue
			}
			conn, err := net.Dial("tcp", net.JoinHostPort(p.ip, fmt.Sprint(port.ContainerPort)))
			if err != nil {
				c.t.Errorf("%s, port %s: %v", p.name, port.Name, err)
				continue
			}
			_ = conn.Close()
		}
		if p.labels["app.kubernetes.io/component"] == "node" {
			c.checkNode(c.t, p, nodes)
		}
	}
}

// checkServing checks that edge-envoy answers a health check over gRPC with SERVING, 1, as the field 1 of its message.
func checkServing(t *testing.T, p *pod) {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url(8081)+"/grpc.health.v1.Health/Check", strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	resp, err := transport.RoundTrip(request)
	if err != nil {
		t.Errorf("%s: %v", p.name, err)
		return
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "\x00\x00\x00\x00\x02\x08\x01" || err != nil {
		t.Errorf("%s: health check: %v, %q, %v", p.name, resp.Trailer, body, err)
	}
}

// checkNode checks one of several nodes.
func (c *cluster) checkNode(t *testing.T, p *pod, nodes int) {
	metric := func(want string) {
		t.Helper()
		harness.Until(t, p.name+" has the metric "+want, harness.Patience, 100*time.Millisecond, func() bool {
			_, text, err := get(t.Context(), p.url(9180)+"/metrics")
			return err == nil && strings.Contains(text, "\n"+want+"\n")
		})
	}
	metric(fmt.Sprintf("edge_gossip_nodes %d", nodes))
	if p.spec.Containers[0].Command[0] == "/edge-envoy" {
		checkServing(t, p)
		return
	}
	if strings.Contains(strings.Join(p.spec.Containers[0].Args, " "), "--check-listen") { // the gateway is a trusted proxy
		status, text, err := get(t.Context(), p.url(9170)+"/check",
			"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Method", "GET", "X-Forwarded-Host", "shop.example", "X-Forwarded-Uri", "/")
		if status != http.StatusOK || err != nil {
			t.Errorf("%s answers a query %d %s, %v", p.name, status, text, err)
		}
	} else if status, _, err := get(t.Context(), p.url(8080)+"/"); status != http.StatusBadGateway || err != nil {
		t.Errorf("%s answers a client %d, %v; want 502, as the origin does not exist", p.name, status, err)
	}
	if len(c.release.StatefulSets) > 1 { // with shards
		metric(`edge_increments_total{result="ok"} 1`)
	}
	if out, err := p.exec("/edge", "healthcheck"); err != nil || !strings.HasPrefix(out, "ok\n") {
		t.Errorf("%s: edge healthcheck: %s%v", p.name, out, err)
	}
	if out, err := p.exec("/edge", "mitigations", "add", "203.0.113.9", "--for", "1m", "--reason", "a test"); err != nil {
		t.Errorf("%s: edge mitigations add: %s%v", p.name, out, err)
	}
}
