package mix

// Values in files.

import (
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

const (
	maxDuration = 366 * 24 * time.Hour // so that ticks do not overflow
	maxPer      = 31 * 24 * time.Hour  // of a rate
)

// parseTime parses a time and returns it in microseconds since the epoch.
func parseTime(s string) (int64, bool) {
	t, err := time.Parse(time.RFC3339, s)
	return t.UnixMicro(), err == nil && t.Unix() >= 0 && t.Year() <= 2200
}

// parseDuration parses a duration of milliseconds and larger units.
func parseDuration(s string) (time.Duration, bool) {
	d, err := prose.ParseDuration(s, time.Millisecond)
	return d, err == nil && d <= maxDuration
}

// parseRate parses a number of requests, a slash, and a duration, whose number may be omitted if it
// is 1: 50/1m, 50/m, 2_000/s.
func parseRate(s string) (rate, bool) {
	left, right, _ := strings.Cut(s, "/")
	n, ok := digits(left)
	if right != "" && (right[0] < '0' || right[0] > '9') {
		right = "1" + right
	}
	per, valid := parseDuration(right)
	return rate{n, per}, ok && valid && n > 0 && n <= 1e9 && per > 0 && per <= maxPer
}

// digits parses an integer in decimal digits.
func digits(s string) (uint64, bool) {
	plain := strings.ReplaceAll(s, "_", "")
	v, err := strconv.ParseUint(plain, 10, 64)
	return v, err == nil && s[0] != '_' && (plain == "0" || plain[0] != '0')
}
