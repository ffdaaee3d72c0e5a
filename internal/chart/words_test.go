package chart_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/chart"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		chart.Grouped(0): "0", chart.Grouped(999): "999", chart.Grouped(1000): "1,000", chart.Grouped(uint64(18446744073709551615)): "18,446,744,073,709,551,615",
		chart.Count(1, "request"): "1 request", chart.Count(int64(0), "request"): "0 requests", chart.Count(12_345, "request"): "12,345 requests",
		chart.Span(2 * time.Hour): "2h", chart.Span(90 * time.Minute): "1h30m", chart.Span(34*time.Minute + 8*time.Second): "34m8s", chart.Span(10 * time.Minute): "10m", chart.Span(0): "0s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
