package gossip_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkSpread measures how long a message takes from a node to each of seven others, on
// one machine: a thousand messages a second, without loss and with a third of all packets
// lost.
func BenchmarkSpread(b *testing.B) {
	for _, loss := range []float64{0, 0.3} {
		b.Run(fmt.Sprintf("loss=%v", loss), func(b *testing.B) {
			const count = 8
			var mu sync.Mutex
			sent := map[uint64]time.Time{} // guarded by mu
			var took []time.Duration       // guarded by mu
			nodes := startAll(b, count, nil)
			for _, n := range nodes {
				n.wire.set(func(w *wire) { w.loss = loss })
				n.mu.Lock()
				n.heard = func(message []byte) {
					now := time.Now()
					mu.Lock()
					defer mu.Unlock()
					took = append(took, now.Sub(sent[binary.BigEndian.Uint64(message)]))
				}
				n.mu.Unlock()
			}
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			messages := 0
			for b.Loop() {
				<-tick.C
				message := binary.BigEndian.AppendUint64(nil, uint64(messages))
				message = append(message, make([]byte, 85)...) // as long as a record
				mu.Lock()
				sent[uint64(messages)] = time.Now()
				mu.Unlock()
				nodes[messages%count].Send(message)
				messages++
			}
			last := time.Now()
			missing := func() int {
				mu.Lock()
				defer mu.Unlock()
				return messages*(count-1) - len(took)
			}
			for missing() > 0 && time.Since(last) < 2*time.Second {
				time.Sleep(10 * time.Millisecond)
			}
			b.ReportMetric(float64(missing()), "missing-after-2s")
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1e3, "max-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
