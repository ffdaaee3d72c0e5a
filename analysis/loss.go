package analysis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/pop/vote"
)

// A Loss is a shard that fails and loses its counts. The nodes notice it on the next request. As in a PoP,
// the shard leaves the ring a second later, when most nodes have considered it down for that long, and returns when
// it has been up for three seconds. If all shards would leave, all stay. Unlike in a PoP, the pause before a
// shard returns does not grow if it fails again soon.
type Loss struct {
	Shard int           // index, from 0
	At    time.Duration // after the log's first request
	For   time.Duration // if zero, until the end of the log
}

// ParseLoss parses a Loss: 10m is the first shard after ten minutes, 10m+30s the same for half a minute,
// 2@10m+30s the second shard.
func ParseLoss(text string) (l Loss, err error) {
	const hint = "write 10m, 10m+30s, or 2@10m+30s for the second shard"
	when, bad := text, fmt.Errorf("analysis: invalid shard failure %q: %s", text, hint)
	if shard, rest, ok := strings.Cut(text, "@"); ok {
		n, err := strconv.Atoi(shard)
		if err != nil || n < 1 {
			return l, bad
		}
		l.Shard, when = n-1, rest
	}
	at, duration, limited := strings.Cut(when, "+")
	if l.At, err = prose.ParseDuration(at, 0); err != nil || l.At < 0 {
		return l, bad
	}
	if limited {
		if l.For, err = prose.ParseDuration(duration, 0); err != nil || l.For <= 0 {
			return l, bad
		}
	}
	return l, nil
}

// String formats l for ParseLoss.
func (l Loss) String() string {
	text := fmt.Sprintf("%d@%s", l.Shard+1, chart.Span(l.At))
	if l.For > 0 {
		text += "+" + chart.Span(l.For)
	}
	return text
}

// lasts reports whether l lasts at a time, in microseconds after the log's first request, if begin and end delay its
// beginning and its end.
func (l Loss) lasts(at int64, begin, end time.Duration) bool {
	return at >= (l.At+begin).Microseconds() && (l.For == 0 || at < (l.At+l.For+end).Microseconds())
}

// keepsOut reports whether l keeps the shard out of the ring.
func (l Loss) keepsOut(at int64) bool {
	return (l.For == 0 || l.For >= vote.OutAfter) && l.lasts(at, vote.OutAfter, vote.InAfter)
}

// changesOf returns the times at which losses begin or end, or their effects on the ring do, in order.
func changesOf(losses []Loss, start int64) (changes []int64) {
	for _, l := range losses {
		times := []time.Duration{l.At, l.At + vote.OutAfter}
		if l.For > 0 {
			times = append(times, l.At+l.For, l.At+l.For+vote.InAfter)
		}
		for _, after := range times {
			changes = append(changes, start+after.Microseconds())
		}
	}
	slices.Sort(changes)
	return changes
}
