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
// it has been up for three seconds. If all shards would leave, all stay. In a PoP the pause before a shard
// returns grows if it fails again soon.
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

// changesOf returns the times at which shards change, in microseconds since the first request, in order.
func changesOf(losses []Loss) (changes []int64) {
	for _, l := range losses {
		changes = append(changes, l.At.Microseconds(), (l.At + vote.OutAfter).Microseconds())
		if l.For > 0 {
			changes = append(changes, (l.At + l.For).Microseconds(), (l.At + l.For + vote.InAfter).Microseconds())
		}
	}
	slices.Sort(changes)
	return slices.Compact(changes)
}

// stateOf returns whether a shard is down and whether it is out of the ring at a time, in microseconds since
// the first request.
func stateOf(losses []Loss, shard int, elapsed int64) (lost, out bool) {
	for _, l := range losses {
		since := elapsed - l.At.Microseconds()
		if l.Shard != shard || since < 0 {
			continue
		}
		lasts := l.For.Microseconds()
		lost = lost || lasts == 0 || since < lasts
		noticed := since >= vote.OutAfter.Microseconds() && (lasts == 0 || lasts >= vote.OutAfter.Microseconds())
		out = out || noticed && (lasts == 0 || since < lasts+vote.InAfter.Microseconds())
	}
	return lost, out
}
