package async

import "testing"

// Requests that do not fit the sub-windows of a reloaded rule are dropped, and counted as such.
func TestWaitingRequestsThatDoNotFitNewSubWindows(t *testing.T) {
	tr := newTrack(newRule(t, "[{threshold: 50, period: 1m}]"), at(1, 0))
	tr.count(5000, at(1, 0))
	tr.setRule(tr.track, newRule(t, "[{threshold: 50, period: 1m, sub_windows: 6}]"), at(2, 0))
	w := &tr.windows()[0]
	if waiting, lost := tr.limit(0).Layout.Sum(w.Cur.waiting), tr.lost[dropFull]; waiting+lost != 5000 || lost == 0 {
		t.Errorf("of 5000 requests, %d wait and %d are dropped", waiting, lost)
	}
}
