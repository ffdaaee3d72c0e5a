package chart

import (
	"fmt"
	"strings"
	"time"
)

// Grouped formats n, which must not be negative, with commas between thousands.
func Grouped[N int | int64 | uint64](n N) string { return grouped(fmt.Sprint(n)) }

// grouped puts commas between the thousands of a number.
func grouped(s string) string {
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count formats a number of things: 1 request, 1,234 requests.
func Count[N int | int64 | uint64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Grouped(n) + " " + thing
}

// Percent formats n as a percentage of all, with three significant digits: 88.7%, 0.1%.
func Percent[N int | int64 | uint64](n, all N) string {
	return trimmed(100*float64(n)/float64(max(1, all))) + "%"
}

// When formats text if ok is true; otherwise it returns "".
func When(ok bool, format string, args ...any) string {
	if !ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// Span formats a duration without trailing zero units: 34m8s, 2h.
func Span(d time.Duration) string {
	s := d.String()
	for _, none := range []struct{ end, keep string }{{"m0s", "m"}, {"h0m", "h"}} {
		if rest, ok := strings.CutSuffix(s, none.end); ok {
			s = rest + none.keep
		}
	}
	return s
}
