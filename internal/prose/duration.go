package prose

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// units are the units of durations, the largest first.
var units = [...]struct {
	Name string
	Is   time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

// AppendDuration appends d to dst in whole numbers of units: 10s, 1h30m, 7d. d must not be negative.
func AppendDuration(dst []byte, d time.Duration) []byte {
	if d < time.Millisecond {
		return append(dst, '0')
	}
	for _, unit := range units {
		if n := d / unit.Is; n > 0 {
			dst = append(strconv.AppendInt(dst, int64(n), 10), unit.Name...)
			d -= n * unit.Is
		}
	}
	return dst
}

// Duration returns d as AppendDuration writes it.
func Duration(d time.Duration) string { return string(AppendDuration(nil, d)) }

// maxDuration is the most that each unit may add, so that no sum overflows.
const maxDuration = 10_000 * 24 * time.Hour

// ParseDuration parses whole numbers of days, hours, minutes, seconds and milliseconds, each at most ten
// thousand days, larger units first: 10s, 1m, 1h30m, 7d. finest is the smallest unit allowed; if it is 0,
// what [time.ParseDuration] parses is allowed, too. A lone 0 needs no unit.
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
		n, err := strconv.ParseUint(rest[:unit], 10, 64)
		plain := err == nil && (rest[0] != '0' || unit == 1)
		for next < len(units) && units[next].Name != rest[unit:end] {
			next++
		}
		switch {
		case plain && next < len(units) && units[next].Is >= finest && n <= uint64(maxDuration/units[next].Is):
		case finest == 0:
			return time.ParseDuration(s)
		default:
			return 0, fmt.Errorf("%s is not a duration such as 10s, 1m, 1h30m or 7d", Quote(s))
		}
		total += time.Duration(n) * units[next].Is
		rest, next = rest[end:], next+1
	}
	return total, nil
}
