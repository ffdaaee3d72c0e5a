package rule_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
)

// Placeholders are replaced. Everything else in braces is text.
func TestPlaceholders(t *testing.T) {
	for body, want := range map[string]string{
		"quote {id}\n":                              "quote 7kq2-m9xd\n",
		"{id}{id} {retry_after}s":                   "7kq2-m9xd7kq2-m9xd 60s",
		`{"id":"{id}","retry_after":{retry_after}}`: `{"id":"7kq2-m9xd","retry_after":60}`,
		`{"error":{"seconds":{retry_after}}}`:       `{"error":{"seconds":60}}`,
		"<style>p{color:red}</style><p>{id}":        "<style>p{color:red}</style><p>7kq2-m9xd",
		"{a} {{id} {x":                              "{a} {7kq2-m9xd {x",
	} {
		r := responseWith(t, body)
		if got := string(r.AppendBody([]byte("> "), []byte("7kq2-m9xd"), 60)); !r.Filled || got != "> "+want {
			t.Errorf("%q: %q, filled %t; want %q", body, got, r.Filled, want)
		}
	}
	for _, body := range []string{"{}", "{i d}", "f = function() {return}", "{name} {", "{id", "id}", "{", ""} {
		r := responseWith(t, body)
		if got := string(r.AppendBody(nil, []byte("7kq2-m9xd"), 60)); r.Filled || got != body {
			t.Errorf("%q: %q, filled %t; want it unchanged", body, got, r.Filled)
		}
	}
}

func responseWith(t *testing.T, body string) *rule.Response {
	t.Helper()
	return parse(t, withKeys("response: {body: "+strconv.Quote(body)+"}")).Rules()[0].Response
}

// A field with {origin} is sent only to a listed origin, whole.
func TestOrigins(t *testing.T) {
	one := parse(t, withKeys(`response: {origins: [https://app.example.com, "https://*.example.net:8443", "http://[::1]:3000"], headers: {Vary: Origin, A: "<{origin}> {retry_after}"}}`)).Rules()[0]
	r := one.Response
	if one.RefusesClient() {
		t.Error("the same response for every request of a client")
	}
	for _, origin := range []string{"https://app.example.com", "https://a.example.net:8443", "https://a-1.b.example.net:8443", "http://[::1]:3000"} {
		if got, want := string(r.AppendFields(nil, nil, 60, origin)), "Vary: Origin\r\nA: <"+origin+"> 60\r\n"; got != want {
			t.Errorf("%s: %q, want %q", origin, got, want)
		}
	}
	for _, origin := range []string{
		"", "null", "https://app.example.com.", "https://app.example.com:443", "http://app.example.com", "https://App.example.com", "https://example.net:8443",
		"https://.example.net:8443", "https://a.example.net", "https://evil.example/.example.net:8443", "https://evil.example:80#.example.net:8443",
		"https://a@b.example.net:8443", "https://a\r\nX: y.example.net:8443", "https://A.example.net:8443", "https://*.example.net:8443", "{origin}",
		"https://" + strings.Repeat("a.", 130) + "example.net:8443", "https://a.example.net:8443, https://app.example.com",
	} {
		if got, want := string(r.AppendFields(nil, nil, 60, origin)), "Vary: Origin\r\n"; got != want {
			t.Errorf("%q: %q, want %q", origin, got, want)
		}
	}
}
