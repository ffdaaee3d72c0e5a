package proxy_test

import (
	"net/http"
	"testing"

	"github.com/dunglas/httpsfv"
)

// RateLimit-Policy and RateLimit are lists of strings with integer parameters, to a parser of structured fields (RFC 9651).
func TestQuotaFieldsAreStructured(t *testing.T) {
	url := front(t, `rules: [{id: a-1.b_c, characteristics: [ip], limits: [{threshold: 3, period: 1h30m}, {threshold: 9007199254740992, period: 7d}]},
		{id: B, characteristics: [host], limits: [{threshold: 50, period: 1m}]}]`, ok, nil)
	var last *http.Response
	list := func(name string, params ...string) (names []string) {
		t.Helper()
		items, err := httpsfv.UnmarshalList(last.Header.Values(name))
		if err != nil {
			t.Fatalf("%s: %v: %v", name, last.Header.Values(name), err)
		}
		for _, each := range items {
			item := each.(httpsfv.Item)
			names = append(names, item.Value.(string))
			if got := item.Params.Names(); len(got) != len(params) {
				t.Errorf("%s: parameters %q, want %q", name, got, params)
			}
			for _, p := range params {
				if v, _ := item.Params.Get(p); v.(int64) < 0 {
					t.Errorf("%s: %s=%v", name, p, v)
				}
			}
		}
		return names
	}
	seen := 0
	for status := http.StatusOK; status == http.StatusOK; {
		last, _ = do(t, client(t), newRequest(t, "GET", url, nil))
		status = last.StatusCode
		policies, want := list("RateLimit-Policy", "q", "w"), 3
		if status != http.StatusOK {
			want = 2 // of the rule that refuses
		}
		if len(policies) != want {
			t.Errorf("%d: policies %q, want %d", status, policies, want)
		}
		if last.Header.Get("RateLimit") != "" {
			seen += len(list("RateLimit", "r", "t"))
		}
	}
	if seen == 0 {
		t.Errorf("%d limits, want at least the one that is exceeded", seen)
	}
}
