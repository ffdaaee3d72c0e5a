package client_test

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

func arrival(n uint64) (a accesslog.Arrival) {
	binary.LittleEndian.PutUint64(a.Client[:], n)
	return a
}

// Clients get the same numbers as from a map, even if they are fetched together or tables are joined.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.SliceOfN(rapid.Uint64Range(0, 3000), 0, 4000).Draw(t, "clients")
		table, numbers := client.NewTable(), map[accesslog.Client]uint32{}
		for len(drawn) > 0 {
			some := make([]accesslog.Arrival, min(len(drawn), 16))
			for i := range some {
				some[i] = arrival(drawn[i])
			}
			drawn = drawn[len(some):]
			for i := range some {
				c := &some[i].Client
				want, known := numbers[*c]
				if !known {
					want = uint32(len(numbers))
					numbers[*c] = want
				}
				if _, found := table.Find(client.Hash(c), c); found != known {
					t.Fatalf("client %v is found: %t, want %t", c, found, known)
				}
				if got := table.At(client.Hash(c), c); got != want {
					t.Fatalf("client %v has the number %d, want %d", c, got, want)
				}
			}
		}
		other := client.NewTable()
		for n := range uint64(2000) {
			a := arrival(2000 + n)
			numbers[a.Client] = 0
			other.At(client.Hash(&a.Client), &a.Client)
		}
		if table.Join(other); table.Len() != uint32(len(numbers)) {
			t.Fatalf("%d clients after Join, want %d", table.Len(), len(numbers))
		}
	})
}
