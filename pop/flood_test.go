package pop_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/pop"
)

// HTTP/2 floods end their connection, by GOAWAY or by closing it, after a number of frames that does not depend
// on the size of the flood. Others are served meanwhile.
func TestFloodsOfHTTP2(t *testing.T) {
	// Each function returns the nth part of a flood.
	header := frame(headers, endStream|endHeaders, 1, request)
	stream := func(n int) uint32 { return uint32(2*n + 1) }
	const data, priority, reset, settings, ping, windowUpdate, unknown = 0, 2, 3, 4, 6, 8, 0x77
	one := "\x00\x00\x00\x01"
	for _, tt := range []struct {
		name, first string
		part        func(n int) string
	}{
		{"rapid resets", "", func(n int) string {
			return frame(headers, endStream|endHeaders, stream(n), request) + frame(reset, 0, stream(n), "\x00\x00\x00\x08")
		}},
		{"streams that the node has to reset", "", func(n int) string { // MadeYouReset, CVE-2025-8671
			return frame(headers, endHeaders, stream(n), request) + frame(windowUpdate, 0, stream(n), "\x00\x00\x00\x00")
		}},
		{"malformed requests", "", func(n int) string {
			return frame(headers, endStream|endHeaders, stream(n), request+field("Upper", "x"))
		}},
		{"streams beyond the maximum", "", func(n int) string {
			return frame(headers, endHeaders, stream(n), strings.Replace(request, "GET", "PUT", 1))
		}},
		{"CONTINUATION", frame(headers, endStream, 1, request), func(n int) string { return frame(continuation, 0, 1, field("x", strings.Repeat("y", 1000))) }},
		{"empty CONTINUATION", frame(headers, endStream, 1, request), func(n int) string { return frame(continuation, 0, 1, "") }},
		{"settings", "", func(int) string { return frame(settings, 0, 0, "\x00\x04\x00\x01\x00\x00") }},
		{"many settings", "", func(int) string { return frame(settings, 0, 0, strings.Repeat("\x00\x04\x00\x01\x00\x00", 500)) }},
		{"tables that change size", "", func(n int) string { // without a request
			return frame(headers, endStream|endHeaders, stream(n), strings.Repeat("\x20\x3f\xe1\x1f", 3000))
		}},
		{"headers that are long when decoded", frame(headers, endStream|endHeaders, 1, request+"\x40\x01x\x7f\xa1\x1e"+strings.Repeat("y", 4000)), func(n int) string {
			return frame(headers, endStream|endHeaders, stream(n+1), request+strings.Repeat("\xbe", 10_000))
		}},
		{"acknowledgements", "", func(int) string { return frame(settings, 1, 0, "") }},
		{"pings", "", func(int) string { return frame(ping, 0, 0, "12345678") }},
		{"priorities", "", func(int) string { return frame(priority, 0, 7, one+"\x01") }},
		{"unknown frames", "", func(int) string { return frame(unknown, 0, 0, "x") }},
		{"empty data", frame(headers, endHeaders, 1, request), func(int) string { return frame(data, 0, 1, "") }},
		{"padding alone", frame(headers, endHeaders, 1, request), func(int) string { return frame(data, 8, 1, "\x01\x00") }},
		{"data after the end", header, func(int) string { return frame(data, 0, 1, "x") }},
		{"windows that open bit by bit", header, func(int) string { return frame(windowUpdate, 0, 0, one) }},
		{"windows of 1", frame(settings, 0, 0, "\x00\x04\x00\x00\x00\x01") + header, func(int) string { return frame(windowUpdate, 0, 1, one) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := startWired(t, "rules: []", func(w http.ResponseWriter, r *http.Request) {
				if r.Method == "PUT" {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				_, _ = w.Write(make([]byte, 100_000))
			}, nil)
			conn, in := w.dial(preface + tt.first)
			end := make(chan http2.ErrCode, 1)
			go func() {
				defer close(end)
				for frames := http2.NewFramer(io.Discard, in); ; {
					f, err := frames.ReadFrame()
					if err != nil {
						return
					}
					if f, ok := f.(*http2.GoAwayFrame); ok {
						end <- f.ErrCode
						return
					}
				}
			}()
			sent := 0
			for err := error(nil); err == nil && sent < 1_000_000; sent += 100 {
				var parts strings.Builder
				for n := range 100 {
					parts.WriteString(tt.part(sent + n))
				}
				_, err = io.WriteString(conn, parts.String())
			}
			if sent == 1_000_000 {
				t.Errorf("the connection does not end")
			}
			if code, ok := <-end; ok && code != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("the connection ends with %v", code)
			}
			if resp, _ := w.ask(get("a.example")); resp.StatusCode != http.StatusOK {
				t.Errorf("another client: %s", resp.Status)
			}
		})
	}
}

// Short header blocks that become too long when decoded are refused, but their connection stays open. They cost
// the node no more than reading them.
func TestHeaderBombsOfHTTP2(t *testing.T) {
	w := startWired(t, "rules: []", nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
	conn, in := w.dial(preface)
	frames := http2.NewFramer(io.Discard, in)
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	long := "\x40\x01x\x7f\xa1\x1e" + strings.Repeat("y", 4000) // is added to the dynamic table
	for n := range uint32(20) {
		block := request
		if n == 0 {
			block += long
		}
		if n%2 == 0 {
			block += strings.Repeat("\xbe", 20) // 80 KB
		}
		if _, err := io.WriteString(conn, frame(headers, endStream|endHeaders, 2*n+1, block)); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(http.StatusRequestHeaderFieldsTooLarge)
		if n%2 == 1 {
			want = fmt.Sprint(http.StatusBadGateway)
		}
		for got := ""; got == ""; {
			f, err := frames.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if f, ok := f.(*http2.MetaHeadersFrame); ok {
				if got = f.PseudoValue("status"); got != want {
					t.Errorf("request %d: %s, want %s", n, got, want)
				}
			}
		}
	}
}
