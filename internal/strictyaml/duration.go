package strictyaml

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

// maxDuration is the maximum of each number, so that no sum overflows.
const maxDuration = 10_000 * 24 * time.Hour

// ParseDuration parses whole numbers of days, hours, minutes, seconds and milliseconds, larger units
// first: 10s, 1m, 1h30m, 7d. finest is the smallest unit allowed. A lone 0 needs no unit. Values of more
// than ten thousand days are rejected.
func ParseDuration(s string, finest time.Duration) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if s == "" {
		return 0, errors.New("a duration such as 10s, 1m, 1h30m or 7d is missing")
	}
	var total time.Duration
	for rest, next := s, 0; rest != ""; {
		unit := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		end := unit + len(rest[unit:]) - len(strings.TrimLeft(rest[unit:], "dhms"))
		n, ok := ParseDigits(rest[:unit])
		for next < len(prose.Units) && prose.Units[next].Name != rest[unit:end] {
			next++
		}
		if !ok || next == len(prose.Units) || prose.Units[next].Is < finest || n > uint64(maxDuration/prose.Units[next].Is) {
			return 0, fmt.Errorf("%s is not a duration such as 10s, 1m, 1h30m or 7d", prose.Quote(s))
		}
		total += time.Duration(n) * prose.Units[next].Is
		rest, next = rest[end:], next+1
	}
	return total, nil
}
