package mix

// Values in files and in errors.

import (
	"fmt"
	"strings"
	"time"
)

var units = []struct {
	name string
	is   time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

// maxDuration bounds durations, so that their ticks do not overflow.
const maxDuration = 366 * 24 * time.Hour

// parseDuration parses whole numbers of days, hours, minutes, seconds and milliseconds, in any
// order: 10s, 1h30m, 250ms. A lone 0 needs no unit.
func parseDuration(s string) (time.Duration, bool) {
	if s == "0" {
		return 0, true
	}
	var total time.Duration
	for rest := s; rest != ""; {
		n := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		v, ok := digits(rest[:n])
		if rest = rest[n:]; !ok {
			return 0, false
		}
		name := rest[:len(rest)-len(strings.TrimLeft(rest, letters))]
		unit := time.Duration(0)
		for _, u := range units {
			if u.name == name {
				unit, rest = u.is, rest[len(name):]
			}
		}
		if unit == 0 || v > uint64(maxDuration/unit) || total+time.Duration(v)*unit > maxDuration {
			return 0, false
		}
		total += time.Duration(v) * unit
	}
	return total, s != ""
}

// formatDuration formats d for parseDuration.
func formatDuration(d time.Duration) string {
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

// maxPer bounds the durations of rates.
const maxPer = 31 * 24 * time.Hour

// enumerate joins list as in prose: a, b or c.
func enumerate(list []string, conjunction string) string {
	switch n := len(list); n {
	case 0:
		return ""
	case 1:
		return list[0]
	default:
		return strings.Join(list[:n-1], ", ") + " " + conjunction + " " + list[n-1]
	}
}

// quote quotes s, shortened if it is long.
func quote(s string) string {
	const most = 60
	if letters := []rune(s); len(letters) > most {
		return fmt.Sprintf("%q…", string(letters[:most]))
	}
	return fmt.Sprintf("%q", s)
}

// didYouMean returns a hint with the word that s probably stands for, or with all words.
func didYouMean(s string, words []string) string {
	best, least := "", 3
	for _, w := range words {
		if n := distance(strings.ToLower(s), w); n < least && n <= len(w)/3 {
			best, least = w, n
		}
	}
	if best == "" {
		return "there are " + enumerate(words, "and")
	}
	return fmt.Sprintf("did you mean %s?", best)
}

// distance returns the number of insertions, deletions and replacements of letters that turn a into
// b.
func distance(a, b string) int {
	if len(a) > 32 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
