package load_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/edgelimit/edge/load"
)

// Answers that net/http accepts are read in the same way, however they are split.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 429 No\r\nRetry-After: 7\r\nRateLimit: \"a\";r=0;t=7, \"b\";r=3;t=1\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Edge-Node: n1\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 204 None\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
		"HTTP/1.1 999\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		whole, wholeErr := load.ReadAnswers(bytes.NewReader(raw))
		bytewise, byteErr := load.ReadAnswers(iotest.OneByteReader(bytes.NewReader(raw)))
		if len(whole) != len(bytewise) || (wholeErr == nil) != (byteErr == nil) {
			t.Fatalf("at once %v, %v; byte by byte %v, %v", whole, wholeErr, bytewise, byteErr)
		}
		r := bufio.NewReader(bytes.NewReader(raw))
		for i, status := range whole {
			var resp *http.Response
			var err error
			for { // interim answers
				if resp, err = http.ReadResponse(r, nil); err != nil || resp.StatusCode >= 200 {
					break
				}
			}
			if err != nil {
				return // net/http is stricter
			}
			if resp.StatusCode != status {
				t.Fatalf("answer %d: status %d, net/http says %d", i, status, resp.StatusCode)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.ContentLength < 0 && len(resp.TransferEncoding) > 0 && !bytes.Contains(raw, []byte("0\r\n\r\n")) {
				return
			}
			resp.Body.Close()
			if strings.Contains(strings.ToLower(string(raw)), "transfer-encoding") {
				return // a length together with a coding is read differently
			}
		}
	})
}

// Rate limit headers of every form are compared with Retry-After.
func TestHeaders(t *testing.T) {
	for _, test := range []struct {
		name, lines string
		want        load.Headers
	}{
		{"no quota", "Retry-After: 7\r\n", load.Headers{Remaining: -1}},
		{"t agrees", "RateLimit-Policy: \"a\";q=5;w=10\r\nRateLimit: \"a\";r=0;t=7\r\nRetry-After: 7\r\n", load.Headers{}},
		{"t is earlier", "RateLimit: \"a\";r=0;t=6\r\nRetry-After: 7\r\n", load.Headers{OtherTime: true}},
		{"t is later", "Retry-After: 7\r\nRateLimit: \"a\";t=8;r=0\r\n", load.Headers{OtherTime: true}},
		{"t is now", "Retry-After: 7\r\nRateLimit: \"a\";r=0;t=0\r\n", load.Headers{OtherTime: true}},
		{"no t", "Retry-After: 7\r\nRateLimit: \"a\";r=0\r\n", load.Headers{}},
		{"no Retry-After", "RateLimit: \"a\";r=0;t=7\r\n", load.Headers{}},
		{"latest t of several limits", "Retry-After: 7\r\nRateLimit: \"a\";r=0;t=2, \"b\";r=0;t=7, \"c\";r=1;t=60\r\n", load.Headers{}},
		{"in several lines", "Retry-After: 7\r\nRateLimit: \"a\";r=0;t=2\r\nRateLimit: \"b\";r=0;t=8\r\n", load.Headers{OtherTime: true}},
		{"with spaces, and more parameters", "Retry-After: 7\r\nRateLimit: \"a\"; r=0; pk=:cj0x:; t=7; x;y=\"t=9\"\r\n", load.Headers{}},
		{"names that look like parameters", "Retry-After: 7\r\nRateLimit: \"a;t=9,;r=0\\\";r=0\";r=3;t=1\r\n", load.Headers{Remaining: 3}},
		{"not integers", "Retry-After: 7\r\nRateLimit: \"a\";r=0.5;t=-1, b;r=;t\r\n", load.Headers{Remaining: -1}},
		{"a dictionary of an older draft", "Retry-After: 7\r\nRateLimit: limit=5, remaining=0, reset=9\r\n", load.Headers{Remaining: -1}},
		{"the older form agrees", "X-RateLimit-Limit: 5\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 7\r\nRetry-After: 7\r\n", load.Headers{}},
		{"the older form disagrees", "X-RateLimit-Reset: 9\r\nX-RateLimit-Remaining: 0\r\nRetry-After: 7\r\n", load.Headers{OtherTime: true}},
		{"as a date", "X-RateLimit-Reset: 1767225600\r\nX-RateLimit-Remaining: 0\r\nRetry-After: 7\r\n", load.Headers{}},
		{"reset without exhaustion", "X-RateLimit-Reset: 9\r\nX-RateLimit-Remaining: 1\r\nRetry-After: 7\r\n", load.Headers{Remaining: 1}},
	} {
		if got := load.ReadHeaders(test.lines); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
