package pop

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A node that cannot join its PoP reports it after a while, and again when it has joined.
func TestNotJoined(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	now := time.Now()
	n := &Node{o: Options{Now: func() time.Time { return now }}, start: now, notices: newNotices(logger, func() time.Time { return now }, prometheus.NewRegistry())}
	wrong := errors.New("connection refused")
	for range 3 * joinPatience / time.Second {
		if n.joined("10.0.0.2:7946", wrong); now.Sub(n.start) < joinPatience && log.Len() > 0 {
			t.Fatalf("after %v: %s", now.Sub(n.start), &log)
		}
		now = now.Add(time.Second)
	}
	const want = "cannot join the PoP at 10.0.0.2:7946"
	if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), want) {
		t.Errorf("log, want one warning:\n%s", &log)
	}
	if got := n.notices.details(); len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("details %q", got)
	}
	n.joined("10.0.0.2:7946", nil)
	if got := n.notices.details(); len(got) != 0 || !strings.Contains(log.String(), "problem resolved") {
		t.Errorf("details after it joined: %q, log:\n%s", got, &log)
	}
}

// Clients that repeatedly cause and end a problem do not fill the log. A problem that returns immediately and then
// persists is logged.
func TestNoticesComeAndGo(t *testing.T) {
	var log bytes.Buffer
	now := time.Now()
	n := newNotices(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now }, prometheus.NewRegistry())
	for range 200 { // two a second
		n.note(problemJoin, "wrong")
		if got := n.details(); len(got) != 1 {
			t.Fatalf("details %q", got)
		}
		n.note(problemJoin, "")
		now = now.Add(time.Second / 2)
	}
	for _, line := range []string{"level=WARN", "level=INFO"} {
		if got := strings.Count(log.String(), line); got != 2 {
			t.Errorf("%d lines with %s in 100 s, want 2", got, line)
		}
	}
	for range 200 {
		n.note(problemJoin, "wrong again")
		now = now.Add(time.Second)
	}
	if got := strings.Count(log.String(), "wrong again"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, &log)
	}
}
