package async

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

const (
	// A key flaps after flapsAt starts, each within flapPause of the previous one. Rules
	// with a mitigation timeout of 0 throttle clients this way.
	flapsAt   = 3
	flapPause = 10 * time.Second

	// flapReport is how often a key that is still flapping is logged.
	flapReport = time.Minute

	// maxFlaps is the maximum number of keys watched for flapping. maxLines is the maximum
	// number of lines about mitigations logged per second.
	maxFlaps = 4096
	maxLines = 50
)

// A mitigationLog logs starts and ends of mitigations, but only rarely for keys that flap. The
// loop owns it.
type mitigationLog struct {
	*slog.Logger
	clients  bool               // log clients and their requests
	unlogged prometheus.Counter // suppressed lines
	flaps    map[counter.Key]*flap
	second   int64 // of the last line
	lines    int   // in that second
}

// A flap is a series of mitigations of a key.
type flap struct {
	rule     string
	starts   int
	acted    uint64    // requests that they acted on
	last     time.Time // last start
	reported time.Time
}

// quiet reports whether there were too many lines in this second to log another one.
func (l *mitigationLog) quiet(now time.Time) bool {
	if second := now.Unix(); second != l.second {
		l.second, l.lines = second, 0
	}
	if l.lines++; l.lines > maxLines {
		l.unlogged.Inc()
		return true
	}
	return false
}

// started logs the start of a mitigation by r.
func (l *mitigationLog) started(record mitigation.Record, r *rule.Rule, now time.Time) {
	if !l.Enabled(context.Background(), slog.LevelInfo) {
		return // skip formatting Why
	}
	one, text := l.flaps[record.Key], "mitigation started"
	if one == nil {
		if one = new(flap); len(l.flaps) < maxFlaps {
			l.flaps[record.Key] = one
		}
	}
	if one.starts < flapsAt && now.Sub(one.last) > flapPause {
		*one = flap{}
	}
	one.rule, one.last = r.ID, now
	switch one.starts++; {
	case one.starts == flapsAt:
		text, one.reported = "mitigation is flapping: its starts and ends are no longer logged", now
	case one.starts > flapsAt:
		l.unlogged.Inc()
		return
	}
	if !l.quiet(now) {
		l.Info(text, l.withClient(record, "rule", r.ID, "key", record.Key, "action", r.Action,
			"for", record.Lifetime.Round(time.Millisecond), "why", record.Why.String(),
			"period", time.Duration(record.Why.Limit.Period)*time.Microsecond)...)
	}
}

// ended logs the end of a mitigation, on the node where it started.
func (l *mitigationLog) ended(record mitigation.Record, now time.Time) {
	if record.Sample == nil || !l.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	if one := l.flaps[record.Key]; one != nil {
		if one.acted += record.Acted; one.starts >= flapsAt {
			l.unlogged.Inc()
			return
		}
	}
	if !l.quiet(now) {
		l.Info("mitigation ended", l.withClient(record, "rule", record.Sample.Rule, "key", record.Key,
			"after", record.Lifetime.Round(time.Millisecond), "requests", record.Acted, "why", record.Why.String())...)
	}
}

// report logs keys that still flap or have stopped.
func (l *mitigationLog) report(now time.Time) {
	for key, one := range l.flaps {
		text, flaps := "mitigation is still flapping", one.starts >= flapsAt
		if now.Sub(one.last) > flapPause {
			text = "mitigation is no longer flapping"
			delete(l.flaps, key)
		} else if now.Sub(one.reported) < flapReport {
			continue
		}
		if one.reported = now; flaps && !l.quiet(now) {
			l.Info(text, "rule", one.rule, "key", key, "requests", one.acted, "starts", one.starts)
		}
	}
}

// withClient appends the client and its request to log attributes, if clients are logged.
func (l *mitigationLog) withClient(record mitigation.Record, attrs ...any) []any {
	if s := record.Sample; l.clients && s != nil {
		attrs = append(attrs, "client", s.Client, "method", s.Method, "host", s.Host, "path", s.Path)
	}
	return attrs
}
