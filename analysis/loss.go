package analysis

import (
	"cmp"
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

// A shardChange is the start or the end of a Loss, or of its effect on the ring.
type shardChange struct {
	at        int64 // in microseconds since the Unix epoch
	shard     int
	down, out int // what to add to the numbers of losses that make the shard fail, and that keep it out of the ring
}

// changesOf returns the changes in a log that begins at start, in order. Of simultaneous ones, starts come first, so
// that a shard with one loss right after another stays down.
func changesOf(losses []Loss, start int64) (changes []shardChange) {
	for _, l := range losses {
		add := func(after time.Duration, down, out int) {
			changes = append(changes, shardChange{start + (l.At + after).Microseconds(), l.Shard, down, out})
		}
		out := 0
		if l.For == 0 || l.For >= vote.OutAfter {
			out = 1
		}
		add(0, 1, 0)
		add(vote.OutAfter, 0, out)
		if l.For > 0 {
			add(l.For, -1, 0)
			add(l.For+vote.InAfter, 0, -out)
		}
	}
	slices.SortFunc(changes, func(a, b shardChange) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.down, a.down))
	})
	return changes
}
