package harness

import (
	"testing"

	"github.com/edgelimit/edge/counter"
)

// Values reads the counters and records under keys from a shard. The result omits keys that do not exist.
func Values(t testing.TB, shard interface{ Exchange(*counter.Batch) error }, keys ...string) map[string][]byte {
	t.Helper()
	var b counter.Batch
	for _, key := range keys {
		b.Reads = append(b.Reads, counter.Read{Item: counter.Item([]byte(key))})
	}
	if err := shard.Exchange(&b); err != nil {
		t.Fatal(err)
	}
	values := map[string][]byte{}
	for i, read := range b.Reads {
		if read.Outcome == counter.Done {
			values[keys[i]] = read.Value
		}
	}
	return values
}
