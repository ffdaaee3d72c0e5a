package accesslog_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/trace"
)

// normalised is the SHA-256 of the counted data of a log: for every entry, in the order of time, its time in
// seconds and its client's number by first appearance.
func normalised(t *testing.T, l *accesslog.Log) string {
	t.Helper()
	sum := sha256.New()
	numbers := map[accesslog.Client]int{}
	if err := l.Arrivals(t.Context(), func(as []accesslog.Arrival) error {
		for _, a := range as {
			n, known := numbers[a.Client]
			if !known {
				n = len(numbers)
				numbers[a.Client] = n
			}
			fmt.Fprintf(sum, "%d\t%d\n", a.Time/1e6, n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// The hashes of the traces equal those that an independent program computed.
func TestTraces(t *testing.T) {
	for _, want := range []struct {
		name    string
		entries int64
		sum     string
	}{
		{"bplogs", 496706, "c919ece91718cdaa"},
		{"airisdata", 206860, "2ad9e341e7193cbd"},
		{"esnote_2017", 102972, "62887c858ebfb780"},
		{"srhegde", 105177, "47b8cbe40187cc3e"},
		{"xzymo", 49994, "583ec7e90b594a9b"},
	} {
		for _, workers := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/%d", want.name, workers), func(t *testing.T) {
				l, err := accesslog.Open([]string{trace.Shared(t, "traces", want.name+".tsv.gz")}, accesslog.Options{Workers: workers})
				if err != nil {
					t.Fatal(err)
				}
				if got := normalised(t, l); got != want.sum {
					t.Errorf("hash %s, want %s", got, want.sum)
				}
				s := l.Stats()
				got := accesslog.FileStats{Format: s.Files[0].Format, Compression: s.Files[0].Compression, Lines: s.Lines, Entries: s.Entries, Malformed: s.Malformed}
				if diff := cmp.Diff(accesslog.FileStats{Format: "trace", Compression: "gzip", Lines: want.entries, Entries: want.entries}, got); diff != "" {
					t.Errorf("stats (-want +got):\n%s", diff)
				}
			})
		}
	}
}
