package pop_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/golden"
	"github.com/edgelimit/edge/pop"
)

// corpus has requests that servers read differently. Each asks to close the connection if it can.
var corpus = []struct{ name, text string }{
	{"GET", "GET /a?b=c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"empty line first", "\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"absolute form", "GET http://b/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n"},
	{"length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"},
	{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"chunked, with extension and trailer", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n"},
	{"two requests in one write", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"non-ASCII bytes in the target", "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"unregistered method", "FROBNICATE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\nConnection: close\r\n\r\n"},

	{"length and coding", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"coding and length 0", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\nConnection: close\r\n\r\n0\r\n\r\n"},
	{"length twice, equal", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"},
	{"length twice, different", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 0\r\nConnection: close\r\n\r\nabc"},
	{"list of lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\nConnection: close\r\n\r\nabc"},
	{"signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\nConnection: close\r\n\r\nabc"},
	{"negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\nConnection: close\r\n\r\nabc"},
	{"length in hexadecimal", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\nConnection: close\r\n\r\nabc"},
	{"coding twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"list of codings", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"coding after a vertical tab", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"coding in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"space before the colon", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\nConnection: close\r\n\r\nabc"},
	{"folded field", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\nConnection: close\r\n\r\n"},
	{"bare LF", "GET / HTTP/1.1\nHost: a\nConnection: close\n\n"},
	{"bare LF after CRLF", "GET / HTTP/1.1\r\nHost: a\nX: b\r\nConnection: close\r\n\r\n"},
	{"CRLF after bare LF", "GET / HTTP/1.1\nHost: a\r\nConnection: close\r\n\r\n"},
	{"CR before the end of the header", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\rX: y\r\n\r\n"},
	{"bare CR in a field", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rX-Forwarded-For: b\r\nConnection: close\r\n\r\n"},
	{"NUL in a field", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\nConnection: close\r\n\r\n"},
	{"vertical tab in a field", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x0bb\r\nConnection: close\r\n\r\n"},
	{"non-ASCII byte in a name", "GET / HTTP/1.1\r\nHost: a\r\nX\xff: b\r\nConnection: close\r\n\r\n"},
	{"no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\nConnection: close\r\n\r\n"},
	{"empty name", "GET / HTTP/1.1\r\nHost: a\r\n: x\r\nConnection: close\r\n\r\n"},
	{"no Host", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"},
	{"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n"},
	{"bad Host", "GET / HTTP/1.1\r\nHost: a/b\r\nConnection: close\r\n\r\n"},
	{"list of Hosts", "GET / HTTP/1.1\r\nHost: a, b\r\nConnection: close\r\n\r\n"},
	{"Host with a user", "GET / HTTP/1.1\r\nHost: a@b\r\nConnection: close\r\n\r\n"},
	{"target with a user", "GET http://a@b/ HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"},
	{"absolute form, query without path", "GET http://b?x HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"},
	{"asterisk for another method", "GET * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"relative target", "GET a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"two spaces in the request line", "GET  / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"space after the version", "GET / HTTP/1.1 \r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"method in lower case", "get / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"version in lower case", "GET / http/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"bad escape", "GET /%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"control byte in the target", "GET /\x01 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"HTTP/0.9", "GET /\r\n\r\n"},
	{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"CONNECT without a port", "CONNECT a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"request after CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"request after TRACE", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"request after an upgrade to HTTP/2", "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"request after a refused body", "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"request after GET with a chunked body", "GET /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"length with leading zeros", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0010\r\nConnection: close\r\n\r\n0123456789"},
	{"empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\nConnection: close\r\n\r\n"},
	{"space in a length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3 3\r\nConnection: close\r\n\r\nabc"},
	{"tabs around a length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\t3\t\r\nConnection: close\r\n\r\nabc"},
	{"coding in quotes", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"coding with a parameter", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;a=b\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"coding with an empty element", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: , chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"length with identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"},
	{"coding after a folded length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nabc"},
	{"chunk size with a sign", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n+3\r\nabc\r\n0\r\n\r\n"},
	{"chunk size that overflows", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n10000000000000003\r\nabc\r\n0\r\n\r\n"},
	{"bare LF in a chunk line", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\nabc\r\n0\r\n\r\n"},
	{"bare LF in an extension", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3;\nabc\r\n0\r\n\r\n"},
	{"bare CR in an extension", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3;\rx\r\nabc\r\n0\r\n\r\n"},
	{"bare LF after a chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\n0\r\n\r\n"},
	{"bare LF after the last chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\n"},
	{"space after a chunk size", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3 \r\nabc\r\n0\r\n\r\n"},
	{"chunk size with 0x", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n"},
	{"framing in trailers", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\nContent-Length: 9\r\nHost: b\r\n\r\n"},
	{"folded trailer", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n z\r\n\r\n"},
	{"chunk without its end", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"},
	{"request after a body of length 0", "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	{"Connection names Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close, Content-Length\r\nContent-Length: 3\r\n\r\nabc"},
	{"Connection names X-Forwarded-For", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Forwarded-For\r\nX-Forwarded-For: b\r\n\r\n"},
	{"underscores", "GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: b\r\nContent_Length: 3\r\nConnection: close\r\n\r\n"},
}

// A recorder is an origin that records how it reads requests.
type recorder struct {
	ln net.Listener

	mu   sync.Mutex
	seen []string
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	r := &recorder{ln: ln}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go r.serve(conn)
		}
	}()
	return r
}

// serve reads a request from conn, answers it, and records anything that follows.
func (r *recorder) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(conn)
	if _, err := in.Peek(1); err != nil {
		return // the connection was not used
	}
	req, err := http.ReadRequest(in)
	if err != nil {
		r.note("unreadable")
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // an incomplete request does not count
	}
	note := req.Method + " " + req.RequestURI
	if len(body) > 0 {
		note += fmt.Sprintf(" %q", body)
	}
	if forwarded := req.Header["X-Forwarded-For"]; len(forwarded) != 1 || forwarded[0] != "127.0.0.1" && forwarded[0] != "unix:" {
		note += fmt.Sprintf(" forwarded for %q", forwarded)
	}
	if length := req.Header.Get("Content-Length"); strings.HasPrefix(length, "0") && length != "0" {
		note += " length " + length
	}
	for name := range req.Header {
		if strings.Contains(name, "_") {
			note += " " + name
		}
	}
	r.note(note)
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	_ = conn.(*net.TCPConn).CloseWrite()
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		r.note(fmt.Sprintf("followed by %q", rest))
	}
}

func (r *recorder) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, what)
}

func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := strings.Join(r.seen, ", ")
	r.seen = nil
	return seen
}

// This test compares how nginx and the engine treat requests, above all malformed ones: the answers to the
// client, and what the origin sees. docs/http.md explains the differences.
func TestEnginesAgree(t *testing.T) {
	origin := newRecorder(t)
	address := "http://" + origin.ln.Addr().String()
	nginx := startNginx(t, fmt.Sprintf(`location / { proxy_pass %s; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For 127.0.0.1; }`, address))
	w := startWired(t, "rules: []", nil, func(o *pop.Options) {
		o.Origin, o.ReadHeaderTimeout, o.BodyTimeout = address, patience, patience
	})
	readers := []struct {
		name string
		dial func() (net.Conn, error)
	}{
		{"nginx", func() (net.Conn, error) { return nginx.DialContext(t.Context(), "", "") }},
		{"edge", func() (net.Conn, error) { return net.Dial("tcp", w.addr) }},
	}
	var got bytes.Buffer
	for _, request := range corpus {
		fmt.Fprintf(&got, "%s\n", request.name)
		for _, reader := range readers {
			conn, err := reader.dial()
			if err != nil {
				t.Fatal(err)
			}
			statuses := exchange(t, conn, request.text)
			seen := origin.take()
			fmt.Fprintf(&got, "  %-5s %s", reader.name, statuses)
			if seen != "" {
				fmt.Fprintf(&got, " | %s", seen)
			}
			fmt.Fprintln(&got)
			if reader.name != "nginx" && (strings.Contains(seen, "followed by") || strings.Contains(seen, "unreadable")) {
				t.Errorf("%s, %s: the origin sees %s", request.name, reader.name, seen)
			}
		}
	}
	golden.Check(t, "testdata/engines.txt", got.Bytes())
}

// exchange sends text over conn and returns the statuses of all answers until conn ends.
func exchange(t *testing.T, conn net.Conn, text string) string {
	t.Helper()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = io.WriteString(conn, text)
	in := bufio.NewReader(conn)
	var statuses []string
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		statuses = append(statuses, fmt.Sprint(resp.StatusCode))
	}
	if len(statuses) == 0 {
		return "no answer"
	}
	return strings.Join(statuses, " ")
}
