package operate_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/operate"
)

func TestHandler(t *testing.T) {
	reg := prometheus.NewRegistry()
	promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: "edge_things_total", Help: "Things."}).Add(3)
	var notReady error
	h := operate.Handler(reg, func() ([]string, error) { return []string{"rules differ from those of n2"}, notReady })

	for _, test := range []struct {
		name, method, path string
		notReady           error
		status             int
		body               string // that the answer has
	}{
		{"metrics", "GET", "/metrics", nil, 200, "\nedge_things_total 3\n"},
		{"alive", "GET", "/livez", nil, 200, "ok\n"},
		{"alive while it stops", "GET", "/livez", errors.New("stopping"), 200, "ok\n"},
		{"ready", "GET", "/readyz", nil, 200, "ok\nrules differ from those of n2\n"},
		{"not ready", "GET", "/readyz", errors.New("stopping"), 503, "stopping\n"},
		{"head", "HEAD", "/readyz", nil, 200, ""},
		{"links", "GET", "/", nil, 200, `<a href="metrics">`},
		{"no such page", "GET", "/other", nil, 404, ""},
		{"nothing is changed", "POST", "/readyz", nil, 405, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			notReady = test.notReady
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.body) {
				t.Errorf("%s %s: %d %q, want %d with %q", test.method, test.path, w.Code, w.Body, test.status, test.body)
			}
		})
	}
}
