package accesslog_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
)

var agents = []string{
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
	"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
	"curl/8.5.0",
}

// combined writes a combined log with this many lines, in order.
func combined(tb testing.TB, lines int) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "access.log")
	f, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	w := bufio.NewWriter(f)
	r := rand.New(rand.NewPCG(1, 2))
	clients := rand.NewZipf(r, 1.1, 4, 100_000)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range lines {
		c := clients.Uint64()
		fmt.Fprintf(w, "%d.%d.%d.%d - - [%s] \"GET /assets/%x/app-%d.js?v=%d HTTP/1.1\" 200 %d \"https://www.example.com/page/%d\" %q\n",
			11+c%200, c>>16&0xff, c>>8&0xff, c&0xff, at.Add(time.Duration(i)*300*time.Microsecond).Format("02/Jan/2006:15:04:05 -0700"),
			r.Uint32(), r.IntN(1000), r.IntN(100), r.IntN(100000), r.IntN(10000), agents[r.IntN(len(agents))])
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return name
}

// benchmark reads a combined log of a million lines with the given options.
func benchmark(b *testing.B, name string, o accesslog.Options, read func(l *accesslog.Log, n *int) error) {
	for b.Loop() {
		l, err := accesslog.Open([]string{name}, o)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		if err := read(l, &n); err != nil || n != benchLines {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchLines, "ns/line")
}

const benchLines = 1_000_000

func BenchmarkArrivals(b *testing.B) {
	name := combined(b, benchLines)
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			benchmark(b, name, accesslog.Options{Workers: workers}, func(l *accesslog.Log, n *int) error {
				return l.Arrivals(b.Context(), func(as []accesslog.Arrival) error { *n += len(as); return nil })
			})
		})
	}
}

// BenchmarkEntries reads whole entries, and the fields that most rules need.
func BenchmarkEntries(b *testing.B) {
	name := combined(b, benchLines)
	for need, fields := range map[string]accesslog.Fields{"all": accesslog.All, "path": accesslog.Addr | accesslog.Method | accesslog.Path} {
		b.Run("need="+need, func(b *testing.B) {
			benchmark(b, name, accesslog.Options{Need: fields}, func(l *accesslog.Log, n *int) error {
				return l.Entries(b.Context(), func(*accesslog.Entry) error { *n++; return nil })
			})
		})
	}
}
