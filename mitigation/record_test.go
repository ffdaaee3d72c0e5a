package mitigation_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/mitigation"
)

// Of each two records of a key every node keeps the same one, also if only the node or the start
// tells them apart.
func TestOrder(t *testing.T) {
	least := record(time.Hour)
	later := least
	later.Start, later.Lifetime = least.Start+1, least.Lifetime-time.Microsecond // the same end
	otherNode := least
	otherNode.Node++
	longer := least
	longer.Lifetime += time.Microsecond
	lifted := least
	lifted.Lifted, lifted.Lifetime = true, time.Minute
	next := least
	next.Generation, next.Lifetime = 1, time.Minute
	records := []mitigation.Record{least, later, otherNode, longer, lifted, next} // from least to greatest
	for i, a := range records {
		for j, b := range records {
			table := newTable(t, mitigation.Options{})
			merge(t, table, a, start, true)
			merge(t, table, b, start, j > i)
			got, _ := table.Held(key(1), start)
			if want := records[max(i, j)]; got.Wins(want) || want.Wins(got) {
				t.Errorf("of records %d and %d %+v is kept, want %+v", i, j, got, want)
			}
		}
	}
}
