package http2_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sort"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/http1"
)

// The origin gets each request as a head of HTTP/1.1, unless the engine refuses it: then the client gets the error.
func TestRequests(t *testing.T) {
	usual := []string{":method", "GET", ":scheme", "http", ":authority", "a.example", ":path", "/a?b"}
	but := func(name, value string) []string {
		fields := append([]string{}, usual...)
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == name {
				if value == "" {
					return append(fields[:i], fields[i+2:]...)
				}
				fields[i+1] = value
			}
		}
		return fields
	}
	and := func(fields ...string) []string { return append(append([]string{}, usual...), fields...) }
	const reset = "PROTOCOL_ERROR"
	for _, tt := range []struct {
		name   string
		fields []string
		want   string
	}{
		{"usual", usual, "200 GET a.example /a?b"},
		{"fields", and("x-b", "1", "x-a", "2"), "200 GET a.example /a?b X-A=2 X-B=1"},
		{"cookie crumbs", and("cookie", "a=1", "x", "y", "cookie", "b=2"), "200 GET a.example /a?b Cookie=a=1; b=2 X=y"},
		{"Host alone", append(but(":authority", ""), "host", "b.example"), "200 GET b.example /a?b"},
		{"the same Host", and("host", "A.example"), "200 GET a.example /a?b"},
		{"another Host", and("host", "b.example"), reset},
		{"two Hosts", append(but(":authority", ""), "host", "b", "host", "b"), "400 a request needs exactly one Host"},
		{"no host", but(":authority", ""), "400 a request needs exactly one Host"},
		{"trailers are welcome", and("te", "trailers"), "200 GET a.example /a?b Te=trailers"},
		{"other codings", and("te", "gzip"), reset},
		{"Connection", and("connection", "close"), reset},
		{"Transfer-Encoding", and("transfer-encoding", "chunked"), reset},
		{"Upgrade", and("upgrade", "x"), reset},
		{"Keep-Alive", and("keep-alive", "x"), reset},
		{"Proxy-Connection", and("proxy-connection", "x"), reset},
		{"upper case", and("X-a", "1"), reset},
		{"line break in a value", and("x", "1\r\ny: 2"), reset},
		{"line break in the path", but(":path", "/a HTTP/1.1\r\nx: y"), reset},
		{"line break in the method", but(":method", "GET / HTTP/1.1\r\nx: y\r\n\r\n"), reset},
		{"colon in a name", and("x: y", "1"), reset},
		{"NUL in a value", and("x", "\x00"), reset},
		{"blank in the path", but(":path", "/a b"), "400 invalid request target"},
		{"blank in the method", but(":method", "GET /a"), "400 invalid request target"},
		{"fragment", but(":path", "/a#b"), "400 invalid request target"},
		{"absolute path", but(":path", "http://b.example/"), reset},
		{"asterisk", but(":path", "*"), reset},
		{"OPTIONS *", []string{":method", "OPTIONS", ":scheme", "http", ":authority", "a.example", ":path", "*"}, "200"}, // net/http answers it without the handler
		{"no path", but(":path", ""), reset},
		{"no method", but(":method", ""), reset},
		{"no scheme", but(":scheme", ""), reset},
		{"path twice", append(but("", ""), ":path", "/b"), reset},
		{"pseudo-header after a field", append(append([]string{"x", "y"}, usual...), "y", "z"), reset},
		{"unknown pseudo-header", and(":x", "y"), reset},
		{"CONNECT with a path", but(":method", "CONNECT"), reset},
		{"extended CONNECT", append(but(":method", "CONNECT"), ":protocol", "websocket"), reset},
		{"length without a body", and("content-length", "3"), reset},
		{"length 0", and("content-length", "0"), "200 GET a.example /a?b Content-Length=0"},
		{"two lengths", and("content-length", "0", "content-length", "0"), "400 several Content-Length fields"},
		{"length with a sign", and("content-length", "+0"), "400 invalid Content-Length"},
		{"unknown expectation", and("expect", "wonders"), "417 unsupported Expect"},
		{"too large", and("x", strings.Repeat("x", 20_000)), "431 header too large"},
	} {
		e := start(t, func(w http.ResponseWriter, r *http.Request) {
			var fields []string
			for name, values := range r.Header {
				if name != "X-Via" {
					fields = append(fields, name+"="+strings.Join(values, "|"))
				}
			}
			sort.Strings(fields)
			_, _ = io.WriteString(w, strings.Join(append([]string{r.Method, r.Host, r.RequestURI}, fields...), " "))
		}, nil)
		c := e.client(t)
		block := c.block(tt.fields...)
		first := min(len(block), 16000)
		c.check(c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:first], EndStream: true, EndHeaders: first == len(block)}))
		if first < len(block) {
			c.check(c.WriteContinuation(1, true, block[first:]))
		}
		if got := c.outcome(1); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if malformed := e.h.malformed.Load(); (malformed == 1) != !strings.HasPrefix(tt.want, "200") {
			t.Errorf("%s: %d requests count as malformed", tt.name, malformed)
		}
		c.next = 3
		if got := c.outcome(c.get(true, "/refused")); got != "429 slow down" {
			t.Errorf("%s: the next request: %q, want 429", tt.name, got)
		}
	}
}

// A body that is longer or shorter than its Content-Length, and invalid trailers, reset the
// stream. The origin does not see them as complete.
func TestMalformedBodies(t *testing.T) {
	for _, tt := range []struct {
		name, length string
		send         func(c *client, id uint32) error
		want         string
	}{
		{"as long as declared", "3", func(c *client, id uint32) error { return c.WriteData(id, true, []byte("abc")) }, "200 abc"},
		{"as long as declared, in parts", "3", func(c *client, id uint32) error {
			c.check(c.WriteDataPadded(id, false, []byte("ab"), []byte{0, 0}))
			c.check(c.WriteData(id, false, []byte("c")))
			return c.WriteData(id, true, nil)
		}, "200 abc"},
		{"longer", "3", func(c *client, id uint32) error { return c.WriteData(id, true, []byte("abcd")) }, "PROTOCOL_ERROR"},
		{"shorter", "3", func(c *client, id uint32) error { return c.WriteData(id, true, []byte("ab")) }, "PROTOCOL_ERROR"},
		{"shorter, with trailers", "3", func(c *client, id uint32) error {
			return c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: c.block("x", "y"), EndStream: true, EndHeaders: true})
		}, "PROTOCOL_ERROR"},
		{"trailers", "", func(c *client, id uint32) error {
			c.check(c.WriteData(id, false, []byte("abc")))
			return c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: c.block("x-sum", "7", "host", "b"), EndStream: true, EndHeaders: true})
		}, "200 abcmap[X-Sum:[7]]"},
		{"trailers that do not end the stream", "", func(c *client, id uint32) error {
			return c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: c.block("x", "y"), EndHeaders: true})
		}, "PROTOCOL_ERROR"},
		{"pseudo-header in trailers", "", func(c *client, id uint32) error {
			return c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: c.block(":path", "/"), EndStream: true, EndHeaders: true})
		}, "PROTOCOL_ERROR"},
	} {
		whole := make(chan bool, 1)
		e := start(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			whole <- err == nil
			_, _ = w.Write(body)
			if len(r.Trailer) > 0 {
				_, _ = io.WriteString(w, strings.ReplaceAll(http.Header(r.Trailer).Get("X-Sum"), "7", "map[X-Sum:[7]]"))
			}
		}, nil)
		c := e.client(t)
		fields := []string{}
		if tt.length != "" {
			fields = []string{"content-length", tt.length}
		}
		id := c.get(false, "/", fields...)
		c.check(tt.send(c, id))
		if got := c.outcome(id); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		c.conn.Close()
		if tt.want == "PROTOCOL_ERROR" {
			select {
			case ok := <-whole:
				if ok {
					t.Errorf("%s: the origin considers the body complete", tt.name)
				}
			default: // the request was not sent
			}
		}
	}
}

// An echo answers each request with its path and fields.
type echo struct{ relay }

func (*echo) Serve(s http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	var fields []byte
	for f := range r.Fields {
		fields = fmt.Appendf(fields, "Was-%s: %s\r\n", r.NameOf(f), r.ValueOf(f))
	}
	status := 403
	if r.Body != http1.NoBody {
		status = 413
	}
	s.Answer(status, fields, fmt.Sprintf("%s %s", r.Path(), fields))
	return nil, nil
}

// A repeated header block is not decoded again, and an answer like the previous one is not encoded again. Nobody can
// tell: the same block still means something else once the dynamic table has changed, or for a request with a body.
func TestRepetition(t *testing.T) {
	e := start(t, nil, func(o *http1.Options) { o.Handler = &echo{} })
	c := e.client(t)
	const get, one, two = "\x82\x86\x84\x01\x01h", "\x40\x01x\x011", "\x40\x01x\x012"
	const newest, oldest = get + "\xbe", get + "\xbf"
	for i, tt := range []struct {
		block string
		end   bool
		want  string
	}{
		{get, true, "403 / Was-host: h"},
		{get, true, "403 / Was-host: h"},
		{get, false, "413 / Was-host: h"},
		{get, true, "403 / Was-host: h"},
		{get + one, true, "403 / Was-host: h\r\nWas-x: 1"},
		{get, true, "403 / Was-host: h"},
		{newest, true, "403 / Was-host: h\r\nWas-x: 1"},
		{newest, true, "403 / Was-host: h\r\nWas-x: 1"},
		{get + two, true, "403 / Was-host: h\r\nWas-x: 2"},
		{get + two, true, "403 / Was-host: h\r\nWas-x: 2"},
		{newest, true, "403 / Was-host: h\r\nWas-x: 2"},
		{oldest, true, "403 / Was-host: h\r\nWas-x: 2"},
		{oldest, true, "403 / Was-host: h\r\nWas-x: 2"},
		{get + one, true, "403 / Was-host: h\r\nWas-x: 1"},
		{oldest, true, "403 / Was-host: h\r\nWas-x: 2"},
		{newest, true, "403 / Was-host: h\r\nWas-x: 1"},
		{get + "\x0f\x0d\x011", false, "413 / Was-host: h\r\nWas-content-length: 1"}, // the name's index takes two bytes
		{get + "\x00\x0econtent-length\x011", false, "413 / Was-host: h\r\nWas-content-length: 1"},
		{get + "\x00\x0econtent-length\x011", true, "PROTOCOL_ERROR"},
		{get + "\x00\x0econtent-length\x011", false, "413 / Was-host: h\r\nWas-content-length: 1"},
	} {
		id := uint32(2*i + 1)
		c.check(c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(tt.block), EndStream: tt.end, EndHeaders: true}))
		if got := c.outcome(id); got != tt.want {
			t.Errorf("request %d: %q, want %q", i, got, tt.want)
		}
	}
}

// A request that was read before the server got its connection is answered like any other, and the
// connection waits for the next one.
func TestRequestThatWasReadBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := start(t, nil, nil)
		near, far := net.Pipe()
		defer near.Close()
		sent := make(chan *client)
		go func() {
			c := newClient(t, near)
			c.get(true, "/refused")
			sent <- c
		}()
		begun := make([]byte, 512)
		n := 0
		for range 3 { // the preface, settings and the request
			k, err := far.Read(begun[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		c := <-sent
		go e.Accept(far, http1.Start{Since: time.Now(), Read: begun[:n]})()
		date, want := "", time.Now().UTC().Format(http.TimeFormat)
		for ended := false; !ended; {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch f := f.(type) {
			case *xhttp2.MetaHeadersFrame:
				for _, field := range f.RegularFields() {
					if field.Name == "date" {
						date = field.Value
					}
				}
			case *xhttp2.DataFrame:
				ended = f.StreamEnded()
			}
		}
		if date != want {
			t.Errorf("the answer has the date %q, want %q", date, want)
		}
		time.Sleep(patience / 2)
		if got := c.outcome(c.get(true, "/refused")); got != "429 slow down" {
			t.Errorf("the next request: %s", got)
		}
	})
}

// A connection to the origin is reused after responses of any kind.
func TestOriginConnectionsAreKept(t *testing.T) {
	peers := map[string]bool{} // of the origin, which gets one request at a time
	e := start(t, func(w http.ResponseWriter, r *http.Request) {
		peers[r.RemoteAddr] = true
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		if r.URL.Path == "/204" {
			w.WriteHeader(http.StatusNoContent)
		} else if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "ok")
		}
	}, nil)
	c := e.client(t)
	for _, path := range []string{"/204", "/body", "/empty", "/204", "/204"} {
		if got, want := c.outcome(c.get(true, path)), map[string]string{"/204": "204", "/body": "200 ok", "/empty": "200"}[path]; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if len(peers) != 1 {
		t.Errorf("the origin gets the requests over %d connections, want 1", len(peers))
	}
}
