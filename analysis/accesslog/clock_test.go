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

// times returns the times of the given lines in the order in which they are passed on.
func times(t testing.TB, location *time.Location, lines ...string) (got []time.Time, malformed int64) {
	t.Helper()
	l, err := text("c|2026-01-02T00:00:00Z\n"+"c|"+strings.Join(lines, "\nc|"), accesslog.Options{Format: "$client|$time", Location: location})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Arrivals(t.Context(), func(as []accesslog.Arrival) error {
		for _, a := range as {
			if at := time.UnixMicro(a.Time).UTC(); !at.Equal(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)) {
				got = append(got, at)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got, l.Stats().Malformed
}

func TestTimes(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"CLF", "02/Jan/2026:15:04:05 +0000", "2026-01-02T15:04:05Z"},
		{"CLF in brackets", "[02/Jan/2026:15:04:05 +0000]", "2026-01-02T15:04:05Z"},
		{"CLF, east", "02/Jan/2026:00:30:00 +0530", "2026-01-01T19:00:00Z"},
		{"CLF, west", "31/Dec/2025:23:30:00 -0330", "2026-01-01T03:00:00Z"},
		{"CLF with a fraction", "02/Jan/2026:15:04:05.123 +0100", "2026-01-02T14:04:05.123Z"},
		{"CLF with a fraction and half a zone", "02/Jan/2026:15:04:05.123 +01", ""},
		{"CLF, a leap day", "29/Feb/2024:00:00:00 +0000", "2024-02-29T00:00:00Z"},
		{"CLF, a leap second", "31/Dec/2016:23:59:60 +0000", "2017-01-01T00:00:00Z"},
		{"ISO", "2026-01-02T15:04:05Z", "2026-01-02T15:04:05Z"},
		{"ISO with a fraction", "2026-01-02T15:04:05.123456789Z", "2026-01-02T15:04:05.123456Z"},
		{"ISO with a comma", "2026-01-02 15:04:05,5+01:00", "2026-01-02T14:04:05.5Z"},
		{"ISO with hours only", "2026-01-02T15:04:05-03", "2026-01-02T18:04:05Z"},
		{"ISO without a colon", "2026-01-02T15:04:05.5+0130", "2026-01-02T13:34:05.5Z"},
		{"as Go prints it", "2026-01-02 15:04:05.5 +0100 CET", "2026-01-02T14:04:05.5Z"},
		{"slashes", "2026/01/02 15:04:05", "2026-01-02T15:04:05Z"},
		{"seconds", "1767366245", "2026-01-02T15:04:05Z"},
		{"seconds with a fraction", "1767366245.25", "2026-01-02T15:04:05.25Z"},
		{"milliseconds", "1767366245123", "2026-01-02T15:04:05.123Z"},
		{"milliseconds with a fraction", "1767366245123.5", "2026-01-02T15:04:05.1235Z"},
		{"microseconds", "1767366245123456", "2026-01-02T15:04:05.123456Z"},
		{"nanoseconds", "1767366245123456789", "2026-01-02T15:04:05.123456Z"},
		{"before 2001", "999999999", "2001-09-09T01:46:39Z"},
		{"before 1970", "31/Dec/1969:23:59:59 +0000", "1969-12-31T23:59:59Z"},
		{"no such day", "30/Feb/2026:15:04:05 +0000", ""},
		{"no such month", "02/Foo/2026:15:04:05 +0000", ""},
		{"months run together", "02/anF/2026:15:04:05 +0000", ""},
		{"no such hour", "2026-01-02T24:04:05Z", ""},
		{"no such minute", "2026-01-02T15:60:05Z", ""},
		{"no such second", "2026-01-02T15:04:61Z", ""},
		{"no such zone", "02/Jan/2026:15:04:05 +0060", ""},
		{"no such zone, in ISO", "2026-01-02T15:04:05+99:99", ""},
		{"a word for a zone", "2026-01-02T15:04:05-abc", ""},
		{"no digits", "2026-01-0aT15:04:05Z", ""},
		{"two points", "1.2.3", ""},
		{"nothing after the point", "1767366245.", ""},
		{"too many digits", "99999999999999999999999", ""},
		{"trailing text", "2026-01-02T15:04:05Zulu", ""},
		{"empty", "", ""},
	} {
		got, malformed := times(t, nil, test.text)
		switch {
		case test.want == "" && malformed == 1 && len(got) == 0:
		case test.want != "" && len(got) == 1 && got[0].Format(time.RFC3339Nano) == test.want:
		default:
			t.Errorf("%s: %q is %v, want %q", test.name, test.text, got, test.want)
		}
	}
}

// When clocks change, a time without a zone is read as documented.
func TestDaylightSaving(t *testing.T) {
	for _, test := range []struct{ name, zone, text, want string }{
		{"winter", "Europe/Berlin", "02/Jan/2026:15:04:05", "2026-01-02T14:04:05Z"},
		{"summer", "Europe/Berlin", "02/Jul/2026:15:04:05", "2026-07-02T13:04:05Z"},
		{"the last second before the gap", "Europe/Berlin", "29/Mar/2026:01:59:59", "2026-03-29T00:59:59Z"},
		{"within the gap: the offset before it", "Europe/Berlin", "29/Mar/2026:02:30:00", "2026-03-29T01:30:00Z"},
		{"after the gap", "Europe/Berlin", "29/Mar/2026:03:00:00", "2026-03-29T01:00:00Z"},
		{"before the repeated hour", "Europe/Berlin", "25/Oct/2026:01:59:59", "2026-10-24T23:59:59Z"},
		{"the repeated hour: the first one", "Europe/Berlin", "25/Oct/2026:02:30:00", "2026-10-25T00:30:00Z"},
		{"after the repeated hour", "Europe/Berlin", "25/Oct/2026:03:00:00", "2026-10-25T02:00:00Z"},
		{"west, repeated hour", "America/New_York", "01/Nov/2026:01:30:00", "2026-11-01T05:30:00Z"},
		{"west, gap", "America/New_York", "08/Mar/2026:02:30:00", "2026-03-08T07:30:00Z"},
		{"repeated half hour", "Australia/Lord_Howe", "05/Apr/2026:01:45:00", "2026-04-04T14:45:00Z"},
		{"an explicit zone", "Europe/Berlin", "2026-07-02T15:04:05Z", "2026-07-02T15:04:05Z"},
	} {
		location, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := times(t, location, test.text)
		if len(got) != 1 || got[0].Format(time.RFC3339Nano) != test.want {
			t.Errorf("%s: %s in %s is %v, want %s", test.name, test.text, test.zone, got, test.want)
		}
	}
}

// Any time that the standard library formats is parsed as that time, whatever was parsed before it.
func TestFormattedTimes(t *testing.T) {
	zones := []*time.Location{time.UTC, time.FixedZone("", 5*3600+1800), time.FixedZone("", -9*3600-1800)}
	rapid.Check(t, func(rt *rapid.T) {
		var lines []string
		var want []time.Time
		for range rapid.IntRange(1, 20).Draw(rt, "lines") {
			day := rapid.Int64Range(-10_000, 40_000).Draw(rt, "day")
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
