package accuracy

import (
	"fmt"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// A client with one request takes little memory, however many estimators there are.
func TestMemoryOfRareClients(t *testing.T) {
	a, err := New(Options{Limits: []Limit{{50, 60e6}}, Phases: 4, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]accesslog.Arrival, 0, 10_000)
	add := func(at int64, client int) {
		a := accesslog.Arrival{Time: at}
		copy(a.Client[:], fmt.Sprint(client))
		batch = append(batch, a)
	}
	for i := range cap(batch) {
		add(int64(i)*1e6, max(i, 9_900)) // one sends many requests
	}
	if err := a.Add(batch); err != nil {
		t.Fatal(err)
	}
	if part := a.Part(); part.Clients != 100 {
		t.Fatalf("%d clients, want 100", part.Clients)
	}
	for _, w := range a.workers {
		histories := 0
		for _, s := range w.groups[0].sources {
			if s.history != nil {
				histories++
			}
		}
		if histories != 1 {
			t.Errorf("%d clients have a history, want 1", histories)
		}
	}
}
