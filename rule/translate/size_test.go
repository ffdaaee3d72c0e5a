package translate_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule/translate"
)

// manyServers returns a configuration of n servers, each with two locations, and the same limits or its own.
func manyServers(n int, own bool) []byte {
	var b strings.Builder
	b.WriteString("events {}\nhttp {\nlimit_req_zone $binary_remote_addr zone=z:1m rate=5r/s;\n")
	for i := range n {
		burst := 5
		if own {
			burst = i
		}
		fmt.Fprintf(&b, "server { server_name s%d.test; location / { limit_req zone=z burst=%d; } location /api/ { limit_req zone=z burst=%d; } }\n", i, burst, burst+1)
	}
	b.WriteString("}\n")
	return []byte(b.String())
}

func importServers(t testing.TB, text []byte) {
	if _, err := translate.Files("nginx", translate.File{Name: "nginx.conf", Text: text}); err != nil {
		t.Fatal(err)
	}
}

// The memory for a translation grows in proportion to the number of servers: no step copies or compares all that came
// before.
func TestLinear(t *testing.T) {
	for _, own := range []bool{false, true} {
		allocated := func(n int) float64 {
			text := manyServers(n, own)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			importServers(t, text)
			runtime.ReadMemStats(&after)
			return float64(after.TotalAlloc - before.TotalAlloc)
		}
		if small, large := allocated(500), allocated(2000); large > 5*small {
			t.Errorf("own limits %t: 500 servers take %.0f bytes, 2000 take %.0f", own, small, large)
		}
	}
}

func BenchmarkNginx(b *testing.B) {
	sizes := []int{5_000, 20_000, 40_000}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		for _, own := range []bool{false, true} {
			text := manyServers(n, own)
			b.Run(fmt.Sprintf("servers=%d/own=%t", n, own), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					importServers(b, text)
				}
			})
		}
	}
}
