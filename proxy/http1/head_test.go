package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/edgelimit/edge/proxy/http1"
)

// heads are heads of requests, and the status with which each is refused, or 0.
var heads = []struct {
	name, head string
	status     int
}{
	{"shortest", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"no Host in HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", 0},
	{"empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 0},
	{"empty line before", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"absolute form", "GET http://b/x?y HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"absolute form with query alone", "GET http://b?y HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"absolute form without path", "GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"asterisk form", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"authority form", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"bytes beyond ASCII in target and value", "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\nX: \xc3\xa4\r\n\r\n", 0},
	{"an unregistered method", "M-SEARCH!#$%&'*+^_`|~ / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"tabs around a value", "GET / HTTP/1.1\r\nHost:\ta\t\r\n\r\n", 0},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 0},
	{"length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0005\r\n\r\n", 0},
	{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", 0},

	{"LF alone throughout", "GET / HTTP/1.1\nHost: a\n\n", 0},
	{"LF alone in an empty line before", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	{"LF alone after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 0},
	{"LF alone after a field", "GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
	{"LF alone at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400},
	{"CR alone after LF alone", "GET / HTTP/1.1\nHost: a\nX: a\rb\n\n", 400},
	{"CR alone in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400},
	{"two CR", "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400},
	{"NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x00\r\n\r\n", 400},
	{"DEL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x7f\r\n\r\n", 400},
	{"control byte in the target", "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"folded field", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400},
	{"first field folded", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
	{"space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
	{"no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400},
	{"no name", "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", 400},
	{"name that is not a token", "GET / HTTP/1.1\r\nHost: a\r\nX(: x\r\n\r\n", 400},
	{"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
	{"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
	{"no target", "GET HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"HTTP/0.9", "GET /\r\n\r\n", 400},
	{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
	{"lower-case version", "GET / http/1.1\r\nHost: a\r\n\r\n", 400},
	{"version of three digits", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400},
	{"two blanks", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"blank after the version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
	{"relative target", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"asterisk for GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"other scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"absolute form without host", "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"method that is not a token", "GE(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", 400},
	{"list of lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n", 400},
	{"empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400},
	{"length with an underscore", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n", 400},
	{"length twice", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
	{"length beyond 63 bits", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", 400},
	{"length and coding", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
	{"coding and length", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400},
	{"coding twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
	{"list of codings", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
	{"unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
	{"coding with a vertical tab", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", 400},
	{"coding in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
	{"other expectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417},
	{"authority form without a port", "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"authority form with an empty port", "CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"long target", "GET /" + strings.Repeat("a", 5000) + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
	{"TLS, which has no line end", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400},
	{"long target without an end", "GET /" + strings.Repeat("a", 5000), 414},
	{"long field", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 5000), 431},
}

func TestRequestHeads(t *testing.T) {
	for _, test := range heads {
		t.Run(test.name, func(t *testing.T) {
			var whole, bytewise http1.Request
			n, err := whole.Scan([]byte(test.head), 4096)
			m, err2 := bytewise.ScanBytewise([]byte(test.head), 4096)
			status := 0
			var malformed *http1.Error
			if errors.As(err, &malformed) {
				status = malformed.Status
			}
			if status != test.status || status == 0 && n != len(test.head) {
				t.Errorf("Scan(%.60q) = %d, %v; want all %d bytes, status %d", test.head, n, err, len(test.head), test.status)
			}
			if (err == nil) != (err2 == nil) || err == nil && m != n {
				t.Errorf("byte by byte: %d, %v; whole: %d, %v", m, err2, n, err)
			}
		})
	}
}

// FuzzRequest checks that net/http reads accepted requests in the same way.
func FuzzRequest(f *testing.F) {
	for _, test := range heads {
		f.Add([]byte(test.head))
	}
	f.Add([]byte("GET http://@x HTTP/1.0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, bytewise http1.Request
		n, err := r.Scan(b, 4096)
		if m, err2 := bytewise.ScanBytewise(b, 4096); (err == nil) != (err2 == nil) && n+m > 0 {
			t.Fatalf("byte by byte %d, %v; whole %d, %v", m, err2, n, err)
		}
		if n == 0 || err != nil {
			return
		}
		std, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.TrimLeft(b[:n], "\r\n"))))
		if err != nil {
			// net/http parses the target as a URL. The proxy checks hosts and escapes itself.
			if _, ok := errors.AsType[*url.Error](err); !ok {
				t.Errorf("net/http: %v", err)
			}
			return
		}
		if got, want := string(r.Method()), std.Method; got != want {
			t.Errorf("method %q, net/http %q", got, want)
		}
		if got, want := string(r.Target()), std.RequestURI; got != want {
			t.Errorf("target %q, net/http %q", got, want)
		}
		// net/http cuts off the part before @. Admission refuses such hosts.
		if got, want := string(r.Host()), std.Host; got != want && string(r.Method()) != http.MethodConnect && !strings.Contains(got, "@") {
			t.Errorf("host %q, net/http %q", got, want)
		}
		length := r.Length
		switch r.Body {
		case http1.Chunked:
			length = -1
		case http1.NoBody:
			length = 0
		}
		if length != std.ContentLength {
			t.Errorf("length %d, net/http %d", length, std.ContentLength)
		}
		fields := http.Header{}
		for f := range r.Fields {
			name := http.CanonicalHeaderKey(string(r.NameOf(f)))
			fields[name] = append(fields[name], string(r.ValueOf(f)))
		}
		for name, values := range fields {
			if name == "Host" {
				continue
			}
			if got, want := strings.Join(values, "|"), strings.Join(std.Header[name], "|"); got != want && name != "Upgrade" {
				t.Errorf("%s: %q, net/http %q", name, got, want)
			}
		}
	})
}

// answers are heads of answers, and whether they are refused.
var answers = []struct {
	name, head, method string
	bad                bool
	body               http1.Body
}{
	{"shortest", "HTTP/1.1 200\r\n\r\n", "GET", false, http1.UntilClose},
	{"empty reason", "HTTP/1.1 200 \r\n\r\n", "GET", false, http1.UntilClose},
	{"LF alone", "HTTP/1.1 200 OK\nContent-Length: 1\n\n", "GET", false, http1.Sized},
	{"length 0", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "GET", false, http1.NoBody},
	{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", false, http1.Chunked},
	{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", false, http1.NoBody},
	{"304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET", false, http1.NoBody},
	{"204", "HTTP/1.1 204 No Content\r\n\r\n", "GET", false, http1.NoBody},
	{"interim", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", "GET", false, http1.NoBody},
	{"two digits", "HTTP/1.1 20 OK\r\n\r\n", "GET", true, 0},
	{"four digits", "HTTP/1.1 2000 OK\r\n\r\n", "GET", true, 0},
	{"status below 100", "HTTP/1.1 099 OK\r\n\r\n", "GET", true, 0},
	{"no version", "200 OK\r\n\r\n", "GET", true, 0},
	{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", "GET", true, 0},
	{"control byte in the reason", "HTTP/1.1 200 O\x01K\r\n\r\n", "GET", true, 0},
	{"control byte in a value", "HTTP/1.1 200 OK\r\nX: \x01\r\n\r\n", "GET", true, 0},
	{"folded field", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "GET", true, 0},
	{"length twice", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "GET", true, 0},
	{"length and coding", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", true, 0},
	{"list of codings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "GET", true, 0},
}

func TestAnswerHeads(t *testing.T) {
	for _, test := range answers {
		t.Run(test.name, func(t *testing.T) {
			var a http1.Answer
			n, err := a.Scan([]byte(test.head), test.method)
			if (err != nil) != test.bad || err == nil && (n != len(test.head) || a.Body != test.body) {
				t.Errorf("Scan(%q) = %d, %v with body %d; want bad %v, body %d", test.head, n, err, a.Body, test.bad, test.body)
			}
			var malformed *http1.Error
			if err != nil && !errors.As(err, &malformed) {
				t.Errorf("error %v, want an Error", err)
			}
		})
	}
}

// bodies are chunked bodies, followed by "next", and their content.
var bodies = []struct {
	name, body, data, trailers string
	bad                        bool
}{
	{"empty", "0\r\n\r\n", "", "", false},
	{"two chunks", "3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n", "abc0123456789", "", false},
	{"extensions", "1;a=b;c=\"d\"\r\nx\r\n0 ; e\r\n\r\n", "x", "", false},
	{"trailers", "0\r\nX: y\r\nContent-Length: 5\r\nZ: 1\r\n\r\n", "", "X: y\r\nZ: 1\r\n", false},
	{"LF alone after a size", "1\nx\r\n0\r\n\r\n", "", "", true},
	{"LF alone after data", "1\r\nx\n0\r\n\r\n", "", "", true},
	{"LF alone at the end", "0\r\n\n", "", "", true},
	{"more data than the size", "1\r\nxy\r\n0\r\n\r\n", "", "", true},
	{"no size", "\r\n\r\n", "", "", true},
	{"signed size", "+1\r\nx\r\n0\r\n\r\n", "", "", true},
	{"size with 0x", "0x1\r\nx\r\n0\r\n\r\n", "", "", true},
	{"size beyond 64 bits", "10000000000000000\r\n", "", "", true},
	{"garbage after the size", "1 x\r\nx\r\n0\r\n\r\n", "", "", true},
	{"blank before the size", " 1\r\nx\r\n0\r\n\r\n", "", "", true},
	{"underscore in a size", "1_0\r\nx\r\n0\r\n\r\n", "", "", true},
	{"control byte in an extension", "1;\x01\r\nx\r\n0\r\n\r\n", "", "", true},
	{"long extension", "1;" + strings.Repeat("a", 2000) + "\r\nx\r\n0\r\n\r\n", "", "", true},
	{"malformed trailer", "0\r\nX y\r\n\r\n", "", "", true},
	{"long trailers", "0\r\n" + strings.Repeat("X: "+strings.Repeat("y", 500)+"\r\n", 20) + "\r\n", "", "", true},
}

func TestChunkedBodies(t *testing.T) {
	for _, test := range bodies {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 7, 1 << 20} {
				data, used, trailers, ended, err := http1.Dechunk([]byte(test.body+"next"), size)
				if (err != nil) != test.bad {
					t.Fatalf("in pieces of %d: error %v, want an error: %v", size, err, test.bad)
				}
				if err == nil && (!ended || used != len(test.body) || string(data) != test.data || trailers != test.trailers) {
					t.Errorf("in pieces of %d: %q, trailers %q, %d bytes, ended %v; want %q, %q, %d bytes", size, data, trailers, used, ended, test.data, test.trailers, len(test.body))
				}
			}
		})
	}
}

// FuzzChunked checks that net/http reads accepted bodies in the same way.
func FuzzChunked(f *testing.F) {
	for _, test := range bodies {
		f.Add([]byte(test.body), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		data, used, _, ended, err := http1.Dechunk(b, max(1, size%100))
		if err != nil || !ended {
			return
		}
		request := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + string(b[:used])
		rest := bufio.NewReader(strings.NewReader(request))
		std, err := http.ReadRequest(rest)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(std.Body)
		if err == nil && (!bytes.Equal(data, want) || rest.Buffered() > 0) {
			t.Errorf("%q in %q, net/http reads %q and leaves %d bytes", data, b[:used], want, rest.Buffered())
		}
	})
}

// Names are looked up by length and first letter. No two may share both.
func TestNames(t *testing.T) {
	for name, found := range http1.NamesOf() {
		if found != name {
			t.Errorf("%q is read as %q", name, found)
		}
	}
}
