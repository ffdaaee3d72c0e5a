package operate

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves a page with links, /metrics from g, /livez, which answers while the process runs, and /readyz. While
// ready returns an error, /readyz answers 503, because the node should get no connections. Otherwise it answers 200
// with the details, one per line. Shards that are down do not make a node unready: it serves without them.
func Handler(g prometheus.Gatherer, ready func() (detail []string, err error)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, index)
	})
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

const index = `<!DOCTYPE html>
<title>edge: monitoring of a node</title>
<h1>Monitoring of a node</h1>
<ul>
<li><a href="metrics">metrics</a>, for Prometheus
<li><a href="readyz">readyz</a>: whether the node should get connections, and its problems
<li><a href="livez">livez</a>: whether the process runs
</ul>
<p>The page for operators is on another port: admin_listen, 127.0.0.1:9190 by default.
`
