package limit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

const (
	// A key flaps after flapsAt starts, each within flapPause of the previous one. A rule
	// with a mitigation timeout of 0 throttles clients that way.
	flapsAt   = 3
	flapPause = 10 * time.Second

	// flapReport is how often a key that still flaps is logged.
	flapReport = time.Minute

	// maxFlaps is how many keys are watched, maxLines how many lines about mitigations are
	// logged per second.
	maxFlaps = 4096
	maxLines = 50
)

// flaps keeps the log quiet when mitigations start and end again and again.
type flaps struct {
	mu     sync.Mutex // guards the fields below
	keys   map[counter.Key]*flap
	second int64 // of the last line
	lines  int   // in that second
}

// A flap is a series of mitigations of a key.
type flap struct {
	rule     string
	starts   int
	acted    uint64    // requests that they acted on
	last     time.Time // last start
	reported time.Time
	then     struct { // values at the last report
		starts int
		acted  uint64
	}
}

func (f *flap) flaps() bool { return f.starts >= flapsAt }

// attrs returns log attributes: how often the mitigation started and how many requests it acted
// on.
func (f *flap) attrs(key counter.Key) []any {
	return []any{"rule", f.rule, "key", key, "starts", f.starts, "requests", f.acted,
		"starts_since_last_line", f.starts - f.then.starts, "requests_since_last_line", f.acted - f.then.acted}
}

// log writes a line about a mitigation, unless there were too many in this second. l.flaps.mu
// must be held.
func (l *Limiter) log(now time.Time, text string, attrs ...any) {
	if second := now.Unix(); second != l.flaps.second {
		l.flaps.second, l.flaps.lines = second, 0
	}
	if l.flaps.lines++; l.flaps.lines <= maxLines {
		l.o.Logger.Info(text, attrs...)
	} else {
		l.metrics.unlogged.Inc()
	}
}

// logStart logs the start of a mitigation.
func (l *Limiter) logStart(record mitigation.Record, r *rule.Rule) {
	if !l.o.Logger.Enabled(context.Background(), slog.LevelInfo) {
		return // skip formatting Why
	}
	now, text := l.o.Now(), "mitigation started"
	l.flaps.mu.Lock()
	defer l.flaps.mu.Unlock()
	one := l.flaps.keys[record.Key]
	if one == nil {
		if one = new(flap); len(l.flaps.keys) < maxFlaps {
			l.flaps.keys[record.Key] = one
		}
	}
	if !one.flaps() && now.Sub(one.last) > flapPause {
		*one = flap{}
	}
	one.rule, one.last = r.ID, now
	switch one.starts++; {
	case one.starts == flapsAt:
		text, one.reported = "mitigation flaps: its starts and ends are no longer logged", now
		one.then.starts, one.then.acted = one.starts, one.acted
	case one.starts > flapsAt:
		l.metrics.unlogged.Inc()
		return
	}
	l.log(now, text, append([]any{"rule", r.ID, "key", record.Key, "action", r.Action,
		"for", record.Lifetime.Round(time.Millisecond), "why", record.Why.String(),
		"period", time.Duration(record.Why.Limit.Period) * time.Microsecond}, l.sampleAttrs(record)...)...)
}

// ended logs the end of a mitigation, on the node where it started.
func (l *Limiter) ended(record mitigation.Record) {
	if record.Sample == nil || !l.o.Logger.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	l.flaps.mu.Lock()
	defer l.flaps.mu.Unlock()
	if one := l.flaps.keys[record.Key]; one != nil {
		if one.acted += record.Acted; one.flaps() {
			l.metrics.unlogged.Inc()
			return
		}
	}
	l.log(l.o.Now(), "mitigation ended", append([]any{"rule", record.Sample.Rule, "key", record.Key, "after", record.Lifetime.Round(time.Millisecond),
		"requests", record.Acted, "why", record.Why.String()}, l.sampleAttrs(record)...)...)
}

// runFlaps logs keys that still flap or have stopped, until ctx is done.
func (l *Limiter) runFlaps(ctx context.Context) {
	tick := time.NewTicker(flapPause / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.reportFlaps(l.o.Now())
		}
	}
}

func (l *Limiter) reportFlaps(now time.Time) {
	l.flaps.mu.Lock()
	defer l.flaps.mu.Unlock()
	for key, one := range l.flaps.keys {
		switch ended := now.Sub(one.last) > flapPause; {
		case ended:
			delete(l.flaps.keys, key)
			if one.flaps() {
				l.log(now, "mitigation no longer flaps", one.attrs(key)...)
			}
		case one.flaps() && now.Sub(one.reported) >= flapReport:
			l.log(now, "mitigation still flaps", one.attrs(key)...)
			one.reported, one.then.starts, one.then.acted = now, one.starts, one.acted
		}
	}
}

// sampleAttrs returns the client and its request as log attributes, if LogClients is set.
func (l *Limiter) sampleAttrs(record mitigation.Record) []any {
	if s := record.Sample; l.o.LogClients && s != nil {
		return []any{"client", s.Client, "method", s.Method, "host", s.Host, "path", s.Path}
	}
	return nil
}
