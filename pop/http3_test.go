package pop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/pop"
)

// startSecure starts a node with these rules in front of origin that speaks HTTP/1.1 and HTTP/2 over TLS, and HTTP/3.
func startSecure(t testing.TB, rules string, origin http.HandlerFunc, set func(*pop.Options)) *wired {
	t.Helper()
	dir := t.TempDir()
	s := httptest.NewUnstartedServer(nil) // for its certificate
	s.StartTLS()
	s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	for file, block := range map[string]pem.Block{"/cert.pem": {Type: "CERTIFICATE", Bytes: s.Certificate().Raw}, "/key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err == nil {
			err = os.WriteFile(dir+file, pem.EncodeToMemory(&block), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return startWired(t, rules, origin, func(o *pop.Options) {
		o.TLSListen, o.HTTP3Listen, o.TLSCert, o.TLSKey = "127.0.0.1:0", "127.0.0.1:0", dir+"/cert.pem", dir+"/key.pem"
		if set != nil {
			set(o)
		}
	})
}

// by returns a client with connections of its own that speaks this version of HTTP, and the URL of w for it.
func (w *wired) by(version int) (c *http.Client, url string) {
	addr := w.Addr("https")
	var rt http.RoundTripper
	if version == 3 {
		tr := &http3.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true,
			QUICConfig: &quic.Config{HandshakeIdleTimeout: patience, MaxIdleTimeout: patience},
		}
		w.t.Cleanup(func() { _ = tr.Close() })
		rt, addr = tr, w.Addr("http3")
	} else {
		tr := &http.Transport{ForceAttemptHTTP2: version == 2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true}
		w.t.Cleanup(tr.CloseIdleConnections)
		rt = tr
	}
	return &http.Client{Transport: rt, Timeout: patience}, "https://" + addr.String()
}

// A drawn is a request that a test has drawn.
type drawn struct {
	method, target, body string
	fields, trailers     [][2]string
	sized                bool
}

func draw(t *rapid.T) (d drawn) {
	d.method = rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "FROBNICATE", "get"}).Draw(t, "method")
	d.target = rapid.SampledFrom([]string{"/", "/passes", "/blocked", "/page", "/banned", "/404", "/204", "/304", "/stream", "/trailers", "/a%2Fb//c/../d", "/%zz", "/" + strings.Repeat("a", 8200)}).Draw(t, "path")
	d.target += rapid.SampledFrom([]string{"", "?", "?a=b&c", "?%zz"}).Draw(t, "query")
	name := rapid.SampledFrom([]string{"X-A", "X-B", "Cookie", "Accept", "X-Forwarded-For", "X_Forwarded_For", "Forwarded", "Origin", "Content-Type", "Te", "Expect", "Proxy-Authorization"})
	value := rapid.SampledFrom([]string{"", "a", "a, b", "application/grpc", "application/grpc+proto", "https://a.example", "trailers", "\u00e4", strings.Repeat("v", 3000)})
	count := rapid.SampledFrom([]int{0, 1, 3, 8, 90, 101, 300}).Draw(t, "fields")
	for range count {
		f := [2]string{name.Draw(t, "name"), value.Draw(t, "value")}
		if (f[0] == "Te") == (f[1] == "trailers") && f[0] != "Expect" { // clients of net/http wait, or send others themselves
			f[1] = f[1][:min(len(f[1]), 20_000/count)] // clients know the maximum
			d.fields = append(d.fields, f)
		}
	}
	if d.method == "POST" || d.method == "PUT" {
		d.body = strings.Repeat("b", rapid.SampledFrom([]int{0, 1, 5000, 100_000}).Draw(t, "body"))
		d.sized = d.body == "" || rapid.Bool().Draw(t, "sized") // the end of an empty body may come with the header
		if !d.sized && rapid.Bool().Draw(t, "trailers") {
			d.trailers = [][2]string{{"X-Sum", "1"}}
		}
	}
	return d
}

// ask sends d and returns the status, the fields, the body and the trailers of the answer.
func (d *drawn) ask(t rapid.TB, c *http.Client, url string) string {
	var body io.Reader = strings.NewReader(d.body)
	if !d.sized {
		body = io.MultiReader(body)
	}
	if d.method != "POST" && d.method != "PUT" {
		body = nil
	}
	r, err := http.NewRequest(d.method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Opaque = d.target
	r.Host = "a.example"
	for _, f := range d.fields {
		if f[0] != "Cookie" || f[1] != "" && r.Header["Cookie"] == nil { // several become one, and an empty one none
			r.Header.Add(f[0], f[1])
		}
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header.Set("User-Agent", "test")
	}
	for _, f := range d.trailers {
		r.Trailer = http.Header{f[0]: {f[1]}}
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintln(&b, resp.StatusCode)
	for _, fields := range []http.Header{resp.Header, resp.Trailer} {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if name == "Alt-Svc" && strings.HasPrefix(fields.Get(name), `h3=":`) {
				fields.Set(name, "HTTP/3") // the ports differ
			}
			if name != "Connection" && name != "Trailer" && len(fields[name]) > 0 {
				fmt.Fprintf(&b, "%s: %q\n", name, fields[name])
			}
		}
	}
	return remaining.ReplaceAllString(b.String(), "") + string(content)
}

var remaining = regexp.MustCompile(`(?m)^Ratelimit: .*passes.*\n`) // depends on what is counted already

// The answers over HTTP/1.1, HTTP/2 and HTTP/3 are the same, and so is what the origin gets.
func TestProtocolsAreAnsweredAlike(t *testing.T) {
	const rules = `rules:
- {id: blocked, match: {paths: [/blocked]}, characteristics: [ip], limits: [{threshold: 1, period: 1h}]}
- {id: page, match: {paths: [/page]}, characteristics: [ip], limits: [{threshold: 1, period: 1h}], response: {status: 403, content_type: text/html, body: "wait {{retry_after}}", headers: {Access-Control-Allow-Origin: "{origin}"}, origins: ["https://a.example"]}}
- {id: banned, match: {paths: [/banned]}, characteristics: [ip], limits: [{threshold: 1, period: 1h}], action: shadow_ban, response: {body: "fine"}}
- {id: passes, match: {paths: [/passes]}, characteristics: [ip], limits: [{threshold: 1000000, period: 1h}]}
`
	origin := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.Header().Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
		switch r.URL.Path {
		case "/404":
			w.WriteHeader(http.StatusNotFound)
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		case "/stream":
			w.(http.Flusher).Flush()
		case "/trailers":
			w.Header().Set("Trailer", "X-Sum")
			defer w.Header().Set("X-Sum", "2")
		}
		fmt.Fprintf(w, "%s %s %s %d bytes of %d, %v, %q, trailers %q, %q", r.Method, r.Host, r.RequestURI, len(body), r.ContentLength, err, r.TransferEncoding, r.Trailer, slices.Sorted(maps.Keys(r.Header)))
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
		}
	}
	now := time.Now()
	type side struct {
		c   *http.Client
		url string
	}
	var sides []side
	for version := 1; version <= 3; version++ {
		w := startSecure(t, rules, origin, func(o *pop.Options) { o.Now, o.NodeHeader = func() time.Time { return now }, "X-Node" })
		c, url := w.by(version)
		for n, path := range []string{"/blocked", "/page", "/banned"} {
			for range 2 {
				(&drawn{method: "GET", target: path}).ask(t, c, url)
			}
			await(t, "a mitigation", func() bool { return w.metric("edge_mitigations") == float64(n+1) })
		}
		sides = append(sides, side{c, url})
	}
	statuses := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		got := map[int]string{}
		for i, s := range sides {
			text := d.ask(t, s.c, s.url)
			if strings.HasPrefix(text, "4") || strings.HasPrefix(text, "2") && !strings.Contains(text, "Date: [\"Thu, 01 Jan 2026") {
				text = withoutDate(text)
			}
			got[i+1] = text
		}
		statuses[got[3][:3]]++
		for _, other := range []int{1, 2} {
			if diff := cmp.Diff(got[other], got[3]); diff != "" {
				t.Fatalf("%.500v\nHTTP/%d and HTTP/3 differ:\n%.3000s", d, other, diff)
			}
		}
	})
	t.Log(statuses)
}

// withoutDate returns an answer without the time at which the node has made it.
func withoutDate(answer string) string {
	lines := slices.DeleteFunc(strings.SplitAfter(answer, "\n"), func(line string) bool { return strings.HasPrefix(line, "Date: ") })
	return strings.Join(lines, "")
}

// Exactly 51 requests of a client pass a limit of 50, whichever protocols it uses, and answers announce HTTP/3.
func TestProtocolsCountTogether(t *testing.T) {
	w := startSecure(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1h}]}]", func(http.ResponseWriter, *http.Request) {}, nil)
	var clients []func() *http.Response
	for version := 1; version <= 3; version++ {
		c, url := w.by(version)
		clients = append(clients, func() *http.Response {
			resp, err := c.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if want := fmt.Sprintf(`h3=":%d"; ma=86400`, w.Addr("http3").(*net.UDPAddr).Port); resp.ProtoMajor != version || resp.Header.Get("Alt-Svc") != want {
				t.Errorf("%s: Alt-Svc %q, want HTTP/%d, %q", resp.Proto, resp.Header.Get("Alt-Svc"), version, want)
			}
			return resp
		})
	}
	for n := range 51 {
		if resp := clients[n%3](); resp.StatusCode != http.StatusOK {
			t.Fatalf("request %d over %s: %s", n+1, resp.Proto, resp.Status)
		}
	}
	w.mitigated()
	for _, ask := range clients {
		if resp := ask(); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("request 52 over %s: %s", resp.Proto, resp.Status)
		}
	}
	if resp, _ := w.ask(hello); resp.Header.Get("Alt-Svc") != "" {
		t.Error("HTTP/3 is announced to a client without TLS")
	}
}

// dialHTTP3 opens a connection with HTTP/3 to w.
func (w *wired) dialHTTP3() *quic.Conn {
	w.t.Helper()
	conn, err := quic.DialAddr(w.t.Context(), w.Addr("http3").String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}}, &quic.Config{MaxIdleTimeout: patience})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.CloseWithError(0x100, "") })
	return conn
}

// Connections over HTTP/3 count like others: one too many replaces the oldest of its client.
func TestConnectionsOfHTTP3(t *testing.T) {
	w := startSecure(t, "rules: []", func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) { o.ClientConnections = 2 })
	first := w.dialHTTP3()
	await(t, "the connection counts", func() bool { return w.metric("edge_connections") == 1 })
	w.dialHTTP3()
	w.dialHTTP3()
	<-first.Context().Done()
	if e, ok := errors.AsType[*quic.ApplicationError](context.Cause(first.Context())); !ok || e.ErrorCode != 0x107 {
		t.Errorf("the first connection ends with %v, want H3_EXCESSIVE_LOAD", context.Cause(first.Context()))
	}
	await(t, "two connections are left", func() bool { return w.metric("edge_connections") == 2 })
	if n := w.metric("edge_connections_closed_total/client"); n != 1 {
		t.Errorf("%v connections were closed, want 1", n)
	}
}

// A client that a rule closes loses its connection, and so does a mitigated client that sends malformed requests.
func TestClosedOverHTTP3(t *testing.T) {
	w := startSecure(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1, period: 1h}], action: close}]", func(http.ResponseWriter, *http.Request) {}, nil)
	c, url := w.by(3)
	for range 2 {
		if resp, err := c.Get(url); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
	}
	await(t, "a mitigation", func() bool { return w.metric("edge_mitigations") == 1 })
	for _, frame := range []string{"\x00\x00", "\x01\x03\x00\x00\xd1"} { // DATA first, a header without a path
		conn := w.dialHTTP3()
		stream, err := conn.OpenStream()
		if err == nil {
			_, err = io.WriteString(stream, frame)
			_ = stream.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		<-conn.Context().Done()
	}
	if resp, err := c.Get(url); err == nil {
		t.Errorf("the refused client gets %s", resp.Status)
	}
}

// A stopping node answers requests in flight, and clients open no more connections.
func TestDrainOfHTTP3(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	w := startSecure(t, "rules: []", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first, ")
		w.(http.Flusher).Flush()
		close(began)
		<-release
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}, nil)
	c, url := w.by(3)
	idle := w.dialHTTP3()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-began
	stopped := make(chan error)
	go func() { stopped <- w.Stop(context.Background()) }()
	<-idle.Context().Done()
	select {
	case err := <-stopped:
		t.Fatalf("the node stops before the answer: %v", err)
	default:
	}
	close(release)
	if body, err := io.ReadAll(resp.Body); err != nil || len(body) != len("first, ")+1<<20 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A client that opens streams after the last one loses its connection, even while a request is in flight.
func TestStreamsAfterTheLastOverHTTP3(t *testing.T) {
	began, release := make(chan struct{}, 1000), make(chan struct{})
	w := startSecure(t, "rules: []", func(http.ResponseWriter, *http.Request) { began <- struct{}{}; <-release }, nil)
	conn := w.dialHTTP3()
	ask := func() *quic.Stream {
		s, err := conn.OpenStreamSync(t.Context())
		if err == nil {
			_, _ = io.WriteString(s, "\x01\x08\x00\x00\xd1\xd7\xc1\x50\x01a") // GET /
			_ = s.Close()
		}
		return s
	}
	ask()
	<-began
	stopped := make(chan error)
	go func() { stopped <- w.Stop(context.Background()) }()
	await(t, "the node rejects streams", func() bool {
		s := ask()
		_ = s.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := s.Read(make([]byte, 1))
		e, ok := errors.AsType[*quic.StreamError](err)
		return ok && e.ErrorCode == 0x10b
	})
	for n := 0; ask() != nil; n++ {
		if n == 20_000 {
			t.Error("the connection is still open")
			break
		}
	}
	close(release)
	<-stopped
}

// The origin notices that a client has left, with its stream or with its connection, while it sends or receives.
func TestCancelOverHTTP3(t *testing.T) {
	began, left := make(chan struct{}), make(chan error)
	w := startSecure(t, "rules: []", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "first")
			w.(http.Flusher).Flush()
		}
		began <- struct{}{}
		if r.URL.Path == "/upload" {
			_, err := io.Copy(io.Discard, r.Body)
			left <- err
			return
		}
		<-r.Context().Done()
		left <- r.Context().Err()
	}, nil)
	for _, path := range []string{"/", "/stream", "/upload"} {
		for _, closes := range []bool{false, true} {
			c, url := w.by(3)
			ctx, cancel := context.WithCancel(t.Context())
			var body io.Reader
			if path == "/upload" {
				upload, more := io.Pipe()
				go func() { _, _ = more.Write(make([]byte, 100_000)) }()
				body = upload
			}
			r, err := http.NewRequestWithContext(ctx, "PUT", url+path, body)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if resp, err := c.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-began
			if closes {
				_ = c.Transport.(*http3.Transport).Close()
			}
			cancel()
			if err := <-left; err == nil {
				t.Errorf("%s, closes=%v: the origin notices nothing", path, closes)
			}
			<-ended
		}
	}
}

// The origin's answer counts even if the client has reset the stream.
func TestAbandonedOverHTTP3(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	w := startSecure(t, "rules: [{id: guesses, characteristics: [ip], count: {statuses: [401]}, limits: [{threshold: 2, period: 1h}]}]", func(w http.ResponseWriter, _ *http.Request) {
		began <- struct{}{}
		<-release
		w.WriteHeader(http.StatusUnauthorized)
	}, nil)
	c, url := w.by(3)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if _, err := c.Do(r); err == nil {
				t.Error("the client gets an answer")
			}
		}()
		<-began
		cancel()
		<-ended
	}
	await(t, "the node waits for the answers", func() bool { return w.metric("edge_abandoned_requests_waiting") == 3 })
	close(release)
	await(t, "the answers count", func() bool { return w.metric("edge_abandoned_requests_total/answered") == 3 })
	w.mitigated()
}
