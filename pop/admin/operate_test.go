package admin_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/pop/admin"
)

func TestOperate(t *testing.T) {
	var done string
	h := admin.Handler(prometheus.NewRegistry(), func() ([]string, error) { return nil, nil }, &admin.Operations{
		Mitigations: func() []admin.Mitigation {
			return []admin.Mitigation{{Key: "ab", Start: time.Unix(0, 0).UTC(), Left: 1.5, Why: "1 > 0", Rule: "login"}}
		},
		Lift: func(key string) error {
			done = "lift " + key
			if key == "cd" {
				return errors.New("the shard is down")
			}
			return nil
		},
		KeyOf: func(rule string, client netip.Addr) (string, error) {
			if rule != "login" {
				return "", admin.Unknown("there is no rule " + rule)
			}
			return "key of " + client.String(), nil
		},
		Shards: func() []admin.Shard { return nil },
		Drain: func(shard string, on bool) error {
			done = fmt.Sprint("drain ", shard, " ", on)
			return nil
		},
	})
	for _, test := range []struct {
		name, method, path, from, header string
		status                           int
		body, done                       string
	}{
		{"list", "GET", "/mitigations", "10.0.0.1:1", "", 200, `{"mitigations":[{"key":"ab","start":"1970-01-01T00:00:00Z","left_s":1.5,"lifted":false,"why":"1 > 0","rule":"login"}]}`, ""},
		{"lift", "POST", "/mitigations/lift?key=ab", "127.0.0.1:1", "", 204, "", "lift ab"},
		{"lift by client", "POST", "/mitigations/lift?rule=login&ip=192.0.2.1", "[::1]:1", "", 204, "", "lift key of 192.0.2.1"},
		{"lift in part", "POST", "/mitigations/lift?key=cd", "127.0.0.1:1", "", 409, "the shard is down", "lift cd"},
		{"no such rule", "POST", "/mitigations/lift?rule=x&ip=192.0.2.1", "127.0.0.1:1", "", 404, "there is no rule x", ""},
		{"nobody", "POST", "/mitigations/lift?rule=login", "127.0.0.1:1", "", 409, "give a key", ""},
		{"no rule", "POST", "/mitigations/lift?ip=192.0.2.1", "127.0.0.1:1", "", 409, "give a key", ""},
		{"drain", "POST", "/shards/drain?shard=a:1", "127.0.0.1:1", "", 204, "", "drain a:1 true"},
		{"undrain", "POST", "/shards/undrain?shard=a:1", "[::ffff:127.0.0.1]:1", "", 204, "", "drain a:1 false"},
		{"from elsewhere", "POST", "/shards/drain?shard=a:1", "10.0.0.1:1", "", 403, "only from this machine", ""},
		{"by a web page", "POST", "/shards/drain?shard=a:1", "127.0.0.1:1", "Origin", 403, "by no web page", ""},
		{"by a form", "POST", "/shards/drain?shard=a:1", "127.0.0.1:1", "Sec-Fetch-Site", 403, "by no web page", ""},
		{"by a link", "GET", "/mitigations/lift?key=ab", "127.0.0.1:1", "", 405, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			done = ""
			r := httptest.NewRequest(test.method, test.path, nil)
			if r.RemoteAddr = test.from; test.header != "" {
				r.Header.Set(test.header, "http://evil.example")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Header().Get("Content-Type"); test.status == 200 && got != "application/json" {
				t.Errorf("Content-Type %q, want application/json", got)
			}
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.body) || done != test.done {
				t.Errorf("%d %q, did %q; want %d %q, %q", w.Code, w.Body, done, test.status, test.body, test.done)
			}
		})
	}
}

// Lists are arrays even if they are empty.
func TestNothingToList(t *testing.T) {
	h := admin.Handler(prometheus.NewRegistry(), func() ([]string, error) { return nil, nil }, &admin.Operations{
		Mitigations: func() []admin.Mitigation { return nil },
		Shards:      func() []admin.Shard { return nil },
	})
	for path, want := range map[string]string{"/mitigations": `{"mitigations":[]}`, "/shards": `{"shards":[]}`} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if got := strings.TrimSpace(w.Body.String()); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
