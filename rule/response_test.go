package rule_test

import (
	"strconv"
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
