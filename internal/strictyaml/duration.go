package strictyaml

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

var units = []struct {
	name string
	is   time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

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
		for next < len(units) && units[next].name != rest[unit:end] {
			next++
		}
		if !ok || next == len(units) || units[next].is < finest || n > uint64(maxDuration/units[next].is) {
			return 0, fmt.Errorf("%s is not a duration such as 10s, 1m, 1h30m or 7d", prose.Quote(s))
		}
		total += time.Duration(n) * units[next].is
		rest, next = rest[end:], next+1
	}
	return total, nil
}

// FormatDuration formats d as ParseDuration parses it, without fractions of a millisecond. d must not be
// negative.
func FormatDuration(d time.Duration) string {
	var b []byte
	for _, u := range units {
		if n := d / u.is; n > 0 {
			b = append(strconv.AppendInt(b, int64(n), 10), u.name...)
			d -= n * u.is
		}
	}
	if len(b) == 0 {
		return "0"
	}
	return string(b)
}
