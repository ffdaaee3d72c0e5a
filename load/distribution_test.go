package load_test

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edge/load"
)

// The distribution and the CSV contain every request once.
func TestDistribution(t *testing.T) {
	var n int
	_, targets := serve(t, false, func(w http.ResponseWriter, _ *http.Request) {
		if n++; n%4 == 0 {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	log, err := load.Run(t.Context(), load.Options{
		Targets: targets, Requests: 100, Connections: 1, Identity: load.Identity{Forwarded: true},
		Source: &load.Steady{Profile: fast, Clients: 5, Look: load.Look{Method: "GET", Target: "/a,b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := log.Report()
	if got := r.Nodes[0].Latency; got != r.Latency {
		t.Errorf("latencies of the only node are %+v, want %+v", got, r.Latency)
	}
	var b bytes.Buffer
	if err := r.WriteLatency(&b); err != nil || !strings.Contains(b.String(), "TotalCount 1/(1-Percentile)") && !strings.Contains(b.String(), "TotalCount\t1/(1-Percentile)") {
		t.Errorf("%v:\n%s", err, &b)
	}

	b.Reset()
	if err := log.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(lines) != 101 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	refused := 0
	for i, line := range lines[1:] {
		is := map[string]string{}
		for j, name := range lines[0] {
			is[name] = line[j]
		}
		due, err := strconv.ParseFloat(is["due_s"], 64)
		sent, err2 := strconv.ParseFloat(is["sent_s"], 64)
		if err != nil || err2 != nil || sent < due || is["path"] != "/a,b" || is["component"] != "steady" || is["address"] != "10.0.0."+is["client"] || is["failure"] != "" {
			t.Errorf("line %d: %v", i+1, is)
		}
		if is["status"] == "429" && is["retry_after_s"] == "7" {
			refused++
		}
	}
	if refused != 25 {
		t.Errorf("%d of 100 requests refused, want 25", refused)
	}
}
