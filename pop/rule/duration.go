package rule

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var units = []struct {
	name string
	is   time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}

// maxDuration bounds what ParseDuration reads, so that no sum overflows.
const maxDuration = 10_000 * 24 * time.Hour

// ParseDuration reads whole numbers of days, hours, minutes and seconds, the larger
// units first: 10s, 1m, 1h30m, 7d. A lone 0 needs no unit. Numbers of more than ten
// thousand days are refused.
func ParseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if s == "" {
		return 0, errors.New("a duration such as 10s, 1m, 1h30m or 7d is missing")
	}
	var total time.Duration
	rest, next := s, 0
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, ok := parseDigits(rest[:digits])
		unit := next
		for ; ok && unit < len(units); unit++ {
			if strings.HasPrefix(rest[digits:], units[unit].name) {
				break
			}
		}
		if !ok || unit == len(units) || n > uint64(maxDuration/units[unit].is) {
			return 0, fmt.Errorf("%s is not a duration such as 10s, 1m, 1h30m or 7d", quote(s))
		}
		total += time.Duration(n) * units[unit].is
		rest, next = rest[digits+1:], unit+1
	}
	return total, nil
}

// FormatDuration writes d as ParseDuration reads it. It leaves out fractions of a
// second; d is not negative.
func FormatDuration(d time.Duration) string {
	var b strings.Builder
	for _, u := range units {
		if n := d / u.is; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.is
		}
	}
	if b.Len() == 0 {
		return "0"
	}
	return b.String()
}
