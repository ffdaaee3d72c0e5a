package accesslog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones, even if the machine has none

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// Any time that the standard library formats is parsed as that time, whatever was parsed before it.
func TestFormattedTimes(t *testing.T) {
	zones := []*time.Location{time.UTC, time.FixedZone("", 5*3600+1800), time.FixedZone("", -9*3600-1800)}
	rapid.Check(t, func(rt *rapid.T) {
		var lines []string
		var want []time.Time
		for range rapid.IntRange(1, 20).Draw(rt, "lines") {
			day := rapid.Int64Range(7, 40_000).Draw(rt, "day")
			at := time.Unix(day/7*86400+rapid.Int64Range(0, 86399).Draw(rt, "second"), 0).UTC()
			layout := rapid.SampledFrom([]string{"02/Jan/2006:15:04:05 -0700", time.RFC3339, "2006-01-02 15:04:05Z0700"}).Draw(rt, "layout")
			lines = append(lines, at.In(rapid.SampledFrom(zones).Draw(rt, "zone")).Format(layout))
			want = append(want, at)
		}
		l, err := text("c|"+strings.Join(lines, "\nc|"), accesslog.Options{Format: "$client|$time"})
		if err != nil {
			rt.Fatal(err)
		}
		sum := int64(0)
		if err := l.Arrivals(t.Context(), func(as []accesslog.Arrival) error {
			for _, a := range as {
				sum += a.Time
			}
			return nil
		}); err != nil {
			rt.Fatal(err)
		}
		for _, at := range want {
			sum -= at.UnixMicro()
		}
		if sum != 0 || l.Stats().Entries != int64(len(want)) {
			rt.Errorf("%v: times are off by %d µs in total", fmt.Sprint(lines), sum)
		}
	})
}

// A time in an implausible year is unreadable.
func TestYears(t *testing.T) {
	for year, ok := range map[int]bool{0: false, 1: false, 1899: false, 1900: false, 1969: false, 1970: true, 5138: true, 5139: false, 9999: false} {
		for _, layout := range []string{"02/Jan/2006:15:04:05 -0700", time.RFC3339} {
			at := time.Date(year, 12, 31, 23, 59, 59, 0, time.UTC).Format(layout)
			l, err := text("c|2026-01-02T15:04:05Z\nc|"+at, accesslog.Options{Format: "$client|$time"})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Arrivals(t.Context(), func([]accesslog.Arrival) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if got := l.Stats().Malformed == 0; got != ok {
				t.Errorf("%s: readable is %v, want %v", at, got, ok)
			}
		}
	}
}

// Whether the day may be first depends on all dates of a file, in whichever blocks.
func TestOrderOfDates(t *testing.T) {
	for dates, want := range map[string]bool{"05/05": false, "05/12": true, "05/13": false, "05/12 05/05": true, "05/12 05/13 05/05": false} {
		lines := "c|" + strings.ReplaceAll(dates, " ", "/2026 15:04:05\nc|") + "/2026 15:04:05\n"
		l, err := text(lines, accesslog.Options{Format: "$client|$time"}.WithBlocks(16))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Arrivals(t.Context(), func([]accesslog.Arrival) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := l.Stats().Files[0].Dates.DayMayBeFirst(); got != want {
			t.Errorf("%s: the day may be first is %v, want %v", dates, got, want)
		}
	}
}
