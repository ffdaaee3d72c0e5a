package async

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

const (
	// maxStarts is how often the start of a key's mitigation is logged within inMinute. Rules with a mitigation
	// timeout of 0 throttle clients, whose mitigations start and end all the time.
	maxStarts = 3
	inMinute  = time.Minute

	// maxWatched is the maximum number of keys whose starts are counted. maxLines is the maximum number of lines about
	// mitigations logged per second.
	maxWatched = 4096
	maxLines   = 50
)

// A mitigationLog logs starts and ends of mitigations, but not all of those of a key that is mitigated again and again.
// The loop owns it.
type mitigationLog struct {
	*slog.Logger
	clients  bool               // log clients and their requests
	unlogged prometheus.Counter // suppressed lines
	watched  map[counter.Key]startCount
	second   int64 // of the last line
	lines    int   // in that second
}

// A startCount counts the mitigations of a key that started within a minute.
type startCount struct {
	since  time.Time
	starts int
}

// watch counts the start of a mitigation of key, and returns how many starts there were within a minute.
func (l *mitigationLog) watch(key counter.Key, now time.Time) (starts int) {
	over := func(_ counter.Key, w startCount) bool { return now.Sub(w.since) >= inMinute }
	w, known := l.watched[key]
	if !known || over(key, w) {
		w = startCount{since: now}
	}
	w.starts++
	if !known && len(l.watched) >= maxWatched {
		maps.DeleteFunc(l.watched, over)
	}
	if known || len(l.watched) < maxWatched {
		l.watched[key] = w
	}
	return w.starts
}

// write logs a line, unless there were too many in this second.
func (l *mitigationLog) write(text string, now time.Time, record *mitigation.Record, attrs ...any) {
	if second := now.Unix(); second != l.second {
		l.second, l.lines = second, 0
	}
	if l.lines++; l.lines > maxLines {
		l.unlogged.Inc()
		return
	}
	attrs = append(attrs, "why", record.Why.String())
	if s := record.Sample; l.clients && s != nil {
		attrs = append(attrs, "client", s.Client, "method", s.Method, "host", s.Host, "path", s.Path)
	}
	l.Info(text, attrs...)
}

// started logs the start of a mitigation. about describes what its rule counts under its key.
func (l *mitigationLog) started(ch *change, about func(*rule.Rule, *mitigation.Record) string, now time.Time) {
	if !l.Enabled(context.Background(), slog.LevelInfo) {
		return // skip formatting Why
	}
	record, r := &ch.Record, ch.rule
	attrs := []any{"rule", r.ID, "key", record.Key, "action", r.Action, "for", record.Lifetime.Round(time.Millisecond),
		"period", time.Duration(record.Why.Limit.Period) * time.Microsecond}
	switch starts := l.watch(record.Key, now); {
	case starts == maxStarts:
		attrs = append(attrs, "next", "not logged for a minute")
	case starts > maxStarts:
		l.unlogged.Inc()
		return
	}
	if l.clients && record.Sample != nil {
		if text := about(r, record); text != record.Sample.Client.String() {
			attrs = append(attrs, "about", text)
		}
	}
	l.write("mitigation started", now, record, attrs...)
}

// ended logs the end of a mitigation, on the node where it started.
func (l *mitigationLog) ended(record *mitigation.Record, now time.Time) {
	if record.Sample == nil || !l.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	// A mitigation that ends at the last moment of the minute started in it.
	if w := l.watched[record.Key]; w.starts >= maxStarts && now.Sub(w.since) <= inMinute {
		l.unlogged.Inc()
		return
	}
	l.write("mitigation ended", now, record, "rule", record.Sample.Rule, "key", record.Key,
		"after", record.Lifetime.Round(time.Millisecond), "requests", record.Acted)
}
