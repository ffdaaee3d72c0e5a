package proxy_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/http1"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// noRules limits nobody.
const noRules = "rules: []"

// localhost is the address of test clients.
var localhost = netip.MustParsePrefix("127.0.0.0/8")

// newProxy returns a proxy with these rules in front of origin, and the log that it
// writes. The proxy counts without shards.
func newProxy(t testing.TB, rules, origin string, set func(*proxy.Options)) (*proxy.Proxy, *lockedBuffer) {
	t.Helper()
	log := new(lockedBuffer)
	logger := slog.New(slog.NewTextHandler(log, nil))
	parsed, err := rulefile.Parse("rules.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := counter.NewSecret("a secret of the proxy's tests")
	if err != nil {
		t.Fatal(err)
	}
	table := mitigation.New(mitigation.Options{ID: secret.ID})
	limiter, err := limit.New(limit.Options{Secret: secret, Rules: parsed, Table: table, Logger: logger, Queue: 1024, TrackedKeys: 1024}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { limiter.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	o := proxy.Options{Limiter: limiter, Logger: logger}
	if o.Origins.Default, err = proxy.NewOrigin(origin, proxy.OriginOptions{}); err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(&o)
	}
	p, err := proxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Origins.Close)
	return p, log
}

// A lockedBuffer is a log that may be read while something is logged.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// byHTTP2 and byHTTP3 are set if clients speak HTTP/2 or HTTP/3.
var byHTTP2, byHTTP3 bool

// TestMain runs the tests again, with HTTP/2 and then with HTTP/3 for all clients that support it.
func TestMain(m *testing.M) {
	code := m.Run()
	if flag.Lookup("test.bench").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		byHTTP2 = true
		fmt.Println("again, over HTTP/2:")
		code = max(code, m.Run())
		byHTTP2, byHTTP3 = false, true
		fmt.Println("again, over HTTP/3:")
		code = max(code, m.Run())
	}
	os.Exit(code)
}

// serve starts a server for handler, on 127.0.0.1.
func serve(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

// listen starts p on 127.0.0.1, with TLS if secure is not nil, and returns its address.
func listen(t testing.TB, p *proxy.Proxy, secure *tls.Config, limits http1.Limits) string {
	t.Helper()
	ln, socket := listenBoth(t)
	if byHTTP3 {
		listenHTTP3(t, p, socket, limits)
	} else {
		_ = socket.Close()
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	runFront(t, p, ln, http1.Options{Limits: limits, Handler: p})
	return ln.Addr().String()
}

// runFront runs a front of p for clients of ln.
func runFront(t testing.TB, p *proxy.Proxy, ln net.Listener, o http1.Options) {
	o.ReadHeaderTimeout, o.IdleTimeout = 10*time.Second, time.Hour
	o.Logger = slog.New(slog.DiscardHandler)
	o.MaxStreams, o.MaxOverhead, o.MaxHeaderBytes = 128, 1000, cmp.Or(o.MaxHeaderBytes, 1<<20)
	f := p.NewFront(ln, o)
	go f.Run()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = f.Shutdown(ctx)
	})
}

// serveHTTP2 starts a server for p that speaks HTTP/2, over TLS if secure, and returns its URL.
func serveHTTP2(t testing.TB, p *proxy.Proxy, secure bool) string {
	t.Helper()
	if !secure {
		return serveProxy(t, p)
	}
	s := httptest.NewUnstartedServer(nil) // makes a certificate
	t.Cleanup(s.Close)
	s.EnableHTTP2 = true
	s.StartTLS()
	return "https://" + listen(t, p, s.TLS, http1.Limits{})
}

// serveProxy starts p on 127.0.0.1, and returns its URL.
func serveProxy(t testing.TB, p *proxy.Proxy) string {
	return "http://" + listen(t, p, nil, http1.Limits{})
}

// front starts a proxy with these rules in front of origin and returns its URL.
func front(t testing.TB, rules string, origin http.HandlerFunc, set func(*proxy.Options)) string {
	t.Helper()
	p, _ := newProxy(t, rules, serve(t, origin).URL, set)
	return serveProxy(t, p)
}

// frontWithin is front for clients that may pause within a body for at most this long.
func frontWithin(t testing.TB, bodyTimeout time.Duration, origin http.HandlerFunc) string {
	t.Helper()
	p, _ := newProxy(t, noRules, serve(t, origin).URL, nil)
	return "http://" + listen(t, p, nil, http1.Limits{BodyTimeout: bodyTimeout})
}

// client returns an HTTP client with connections of its own.
func client(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true}
	if byHTTP2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetHTTP2(true)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if byHTTP3 {
		c.Transport = newHTTP3(t, tr)
	}
	return c
}

// do sends r and returns the answer with its body.
func do(t testing.TB, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: reading the answer: %v", r.Method, r.URL, err)
	}
	return resp, string(body)
}

// newRequest returns a request with headers, given as name, value, ….
func newRequest(t testing.TB, method, url string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// exceed sends requests until one is refused, at most 1000, and returns that answer.
func exceed(t testing.TB, c *http.Client, request func() *http.Request) (*http.Response, string) {
	t.Helper()
	for range 1000 {
		if resp, body := do(t, c, request()); resp.StatusCode != http.StatusOK || body == "banned" {
			return resp, body
		}
	}
	t.Fatal("1000 requests passed")
	return nil, ""
}

// ok is an origin that answers "ok".
func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// sum returns the sum of a metric over all its labels.
func sum(t testing.TB, g prometheus.Gatherer, name string) (total float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}
