package page_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis/page"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		page.Grouped(0): "0", page.Grouped(999): "999", page.Grouped(1000): "1,000", page.Grouped(uint64(18446744073709551615)): "18,446,744,073,709,551,615",
		page.Count(1, "request"): "1 request", page.Count(int64(0), "request"): "0 requests", page.Count(12_345, "request"): "12,345 requests",
		page.Span(2 * time.Hour): "2h", page.Span(90 * time.Minute): "1h30m", page.Span(34*time.Minute + 8*time.Second): "34m8s", page.Span(10 * time.Minute): "10m", page.Span(0): "0s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
