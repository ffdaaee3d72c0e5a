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
	// flapsAt is with how many starts a key flaps, each within flapPause of the one before.
	// A rule with a mitigation timeout of 0 throttles a client that way.
	flapsAt   = 3
	flapPause = 10 * time.Second

	// flapReport is how often a line says that a key still flaps.
	flapReport = time.Minute

	// maxFlaps is how many keys are remembered for that, maxLines how many lines a second
	// mitigations are logged with in all.
	maxFlaps = 4096
	maxLines = 50
)

// flaps keep the log quiet where mitigations start and end again and again.
type flaps struct {
	mu     sync.Mutex // guards what follows
	keys   map[counter.Key]*flap
	second int64 // in which lines were logged
	lines  int   // how many
}

// A flap is the mitigations of a key that came one after the other.
type flap struct {
	starts   int
	last     time.Time // when one started last
	reported time.Time
	since    int // starts at the last report
	rule     string
}

// starts takes in that the mitigation of key has started, and reports whether it flaps, and
// whether that has begun just now.
func (f *flaps) starts(key counter.Key, r string, now time.Time) (flapping, begins bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.keys[key]
	switch {
	case one == nil && len(f.keys) >= maxFlaps:
		return false, false
	case one == nil:
		if f.keys == nil {
			f.keys = map[counter.Key]*flap{}
		}
		one = new(flap)
		f.keys[key] = one
	case one.starts < flapsAt && now.Sub(one.last) > flapPause:
		one.starts = 0
	}
	one.starts++
	one.last, one.rule = now, r
	if begins = one.starts == flapsAt; begins {
		one.reported, one.since = now, one.starts
	}
	return one.starts >= flapsAt, begins
}

// flapping reports whether key flaps.
func (f *flaps) flapping(key counter.Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.keys[key]
	return one != nil && one.starts >= flapsAt
}

// room reports whether there may be one more line in this second.
func (f *flaps) room(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if second := now.Unix(); second != f.second {
		f.second, f.lines = second, 0
	}
	f.lines++
	return f.lines <= maxLines
}

// runFlaps logs which keys still flap, and which do so no longer, until ctx is done.
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
	type line struct {
		text string
		key  counter.Key
		flap flap
	}
	var lines []line
	for key, one := range l.flaps.keys {
		switch ended := now.Sub(one.last) > flapPause; {
		case ended && one.starts >= flapsAt:
			lines = append(lines, line{"mitigation no longer flaps", key, *one})
			fallthrough
		case ended:
			delete(l.flaps.keys, key)
		case one.starts >= flapsAt && now.Sub(one.reported) >= flapReport:
			lines = append(lines, line{"mitigation still flaps", key, *one})
			one.reported, one.since = now, one.starts
		}
	}
	l.flaps.mu.Unlock()
	for _, line := range lines {
		l.log(now, line.text, "rule", line.flap.rule, "key", line.key, "starts", line.flap.starts, "since_last_line", line.flap.starts-line.flap.since)
	}
}

// log writes a line about a mitigation, unless there were too many in this second.
func (l *Limiter) log(now time.Time, text string, attrs ...any) {
	if l.flaps.room(now) {
		l.o.Logger.Info(text, attrs...)
	} else {
		l.metrics.unlogged.Inc()
	}
}

// logStart writes the line of a mitigation that starts.
func (l *Limiter) logStart(record mitigation.Record, r *rule.Rule) {
	if !l.o.Logger.Enabled(context.Background(), slog.LevelInfo) {
		return // before the arithmetic is written
	}
	now, text := l.o.Now(), "mitigation started"
	switch flapping, begins := l.flaps.starts(record.Key, r.ID, now); {
	case begins:
		text = "mitigation flaps: its starts and ends are no longer logged"
	case flapping:
		l.metrics.unlogged.Inc()
		return
	}
	l.log(now, text, append([]any{"rule", r.ID, "key", record.Key, "action", r.Action,
		"for", record.Lifetime.Round(time.Millisecond), "why", record.Why.String(),
		"period", time.Duration(record.Why.Limit.Period) * time.Microsecond}, l.sampleAttrs(record)...)...)
}

// ended writes the line of a mitigation that has ended, on the node where it started.
func (l *Limiter) ended(record mitigation.Record) {
	if record.Sample == nil || !l.o.Logger.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	if l.flaps.flapping(record.Key) {
		l.metrics.unlogged.Inc()
		return
	}
	l.log(l.o.Now(), "mitigation ended", append([]any{"rule", record.Sample.Rule, "key", record.Key, "after", record.Lifetime.Round(time.Millisecond),
		"why", record.Why.String()}, l.sampleAttrs(record)...)...)
}

// sampleAttrs names the client and its request, if that is allowed.
func (l *Limiter) sampleAttrs(record mitigation.Record) []any {
	if s := record.Sample; l.o.LogClients && s != nil {
		return []any{"client", s.Client, "method", s.Method, "host", s.Host, "path", s.Path}
	}
	return nil
}
