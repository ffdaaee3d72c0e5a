package operate_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edge/operate"
)

// The answer to any request is JSON with a status that says what is wrong. A request without a token changes nothing,
// and reveals nothing if the listener is not on the loopback interface.
func FuzzAPI(f *testing.F) {
	for _, path := range []string{
		"/api/v1/status", "/api/v1/rules", "/api/v1/mitigations?sort=start&cursor=1-ab", "/api/v1/mitigations/ab", "/api/v1/mitigations/lift?key=ab",
		"/api/v1/mitigations/lift-all?client=::/0&dry_run=1", "/api/v1/explain?rule=a&header:x=%00", "/api/v1/shards/drain?shard=a:1", "/-/reload", "/", "//", "/api/v1/../v1/shards", "*",
	} {
		for _, method := range []string{"GET", "POST"} {
			f.Add(method, path, "127.0.0.1:9190", "Authorization", "Bearer x", "", uint8(3))
		}
	}
	f.Add("POST", "/api/v1/mitigations", "localhost", "Content-Type", "application/x-www-form-urlencoded", "rule=a&ip=::1&duration=1s&reason=r", uint8(1))
	f.Add("DELETE", "/api/v1/mitigations", "[::1", "Origin", "%zz", "x", uint8(0))
	tokens := tokensOf(f, "anna "+secret+"\n")
	f.Fuzz(func(t *testing.T, method, path, host, name, value, body string, flags uint8) {
		target, err := url.ParseRequestURI(path)
		if err != nil || strings.ContainsAny(method, " \r\n") {
			return
		}
		token, closed := flags&1 != 0, flags&2 != 0
		api := newFixture(t, func(o *operate.Options) { o.Open, o.Tokens = !closed, tokens })
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Method, r.URL, r.Host, r.RequestURI = method, target, host, path
		r.Header.Set(name, value)
		if token {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %q is not JSON", method, path, w.Code, w.Body)
		}
		if !slices.Contains([]int{200, 400, 401, 403, 404, 405}, w.Code) {
			t.Errorf("%s %s: status %d", method, path, w.Code)
		}
		if w.Code != 200 {
			var failed map[string]string
			if err := json.Unmarshal(w.Body.Bytes(), &failed); err != nil || len(failed) != 1 || failed["error"] == "" {
				t.Errorf("%s %s: %d %s, want only an error", method, path, w.Code, w.Body)
			}
		}
		switch {
		case token:
		case api.mitigated(t) != "192.0.2.1" || strings.Contains(api.log.String(), "admin change"):
			t.Errorf("%s %s: without a token it changed something: %s", method, path, &api.log)
		case closed && w.Code != 401 && w.Code != 403:
			t.Errorf("%s %s: without a token it reveals %d %s", method, path, w.Code, w.Body)
		}
	})
}
