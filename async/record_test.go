package async

import (
	"testing"

	"github.com/edgelimit/edge/counter/memcached"
)

// A record is stored again unless the shard has it or refuses it. If the shard has another one, that is read first.
func TestRecordIsStoredAgain(t *testing.T) {
	for _, tt := range []struct {
		outcome     memcached.Outcome
		store, read bool
	}{
		{memcached.Done, false, false},
		{memcached.Refused, false, false},
		{memcached.Absent, true, true},
		{memcached.Unknown, true, false},
		{memcached.NotSent, true, false},
	} {
		of := &track{store: true}
		if of.handleStored(tt.outcome); of.store != tt.store || of.readRecord.Load() != tt.read {
			t.Errorf("outcome %v: store = %t, readRecord = %t, want %t, %t", tt.outcome, of.store, of.readRecord.Load(), tt.store, tt.read)
		}
	}
}
