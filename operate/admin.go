package operate

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves /metrics from g, /livez, which answers while the process runs, and /readyz,
// which answers 503 while ready returns an error, because the node should get no connections,
// and otherwise 200 with the details, one per line. Shards that are down do not make a node unready:
// it serves without them.
func Handler(g prometheus.Gatherer, ready func() (detail []string, err error)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		detail, err := ready()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		for _, line := range append([]string{"ok"}, detail...) {
			_, _ = io.WriteString(w, line+"\n")
		}
	})
	return mux
}
