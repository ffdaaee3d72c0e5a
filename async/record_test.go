package async

import (
	"testing"

	"github.com/edgelimit/edge/counter"
)

// A record is stored again unless the shard has it or refuses it. If the shard has another one, it is read first.
func TestRecordIsStoredAgain(t *testing.T) {
	for _, tt := range []struct {
		outcome     counter.Outcome
		store, read bool
	}{
		{counter.Done, false, false},
		{counter.Refused, false, false},
		{counter.Absent, true, true},
		{counter.Unknown, true, false},
		{counter.NotSent, true, false},
	} {
		of := &track{store: true}
		if of.handleStored(tt.outcome); of.store != tt.store || of.readRecord.Load() != tt.read {
			t.Errorf("outcome %v: store = %t, readRecord = %t, want %t, %t", tt.outcome, of.store, of.readRecord.Load(), tt.store, tt.read)
		}
	}
}
