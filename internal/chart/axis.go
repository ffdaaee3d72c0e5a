package chart

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Scale is the scale of an axis.
type Scale uint8

const (
	Linear      Scale = iota // from 0
	Logarithmic              // 0 has a place of its own at the beginning
	Time                     // seconds since the Unix epoch, shown in UTC
)

// An Axis describes what an axis of a plot measures.
type Axis struct {
	Name   string
	Scale  Scale
	Format func(float64) string // formats a value in tables and tips; nil for a number or time
}

func (a Axis) text(v float64) string {
	switch {
	case a.Format != nil:
		return a.Format(v)
	case a.Scale == Time:
		return time.Unix(int64(v), 0).UTC().Format(time.DateTime)
	case v == math.Trunc(v) && v >= 0 && v < 1<<53:
		return Grouped(uint64(v))
	}
	return trimmed(v)
}

// over returns an axis that covers all values, of which there is at least one.
func (a Axis) over(values []float64) axis {
	switch a.Scale {
	case Logarithmic:
		return logarithmic(values)
	case Time:
		return overTime(int64(slices.Min(values)), int64(math.Ceil(slices.Max(values))))
	}
	return linear(slices.Max(values))
}

// An axis maps values to positions: share is 0 at its beginning and 1 at its end.
type axis struct {
	share func(v float64) float64
	ticks []tick
}

// A tick is a labeled value of an axis.
type tick struct {
	at   float64
	name string
}

// linear returns an axis from 0 to at least greatest.
func linear(greatest float64) axis {
	step := nice(max(greatest, 1) / 4)
	end := step * math.Ceil(max(greatest, 1)/step)
	a := axis{share: func(v float64) float64 { return v / end }}
	for i := range int(math.Round(end/step)) + 1 {
		v := step * float64(i)
		a.ticks = append(a.ticks, tick{v, short(v)})
	}
	return a
}

// nice returns the smallest of 1, 2, 5, 10, 20, 50 … that is not less than v.
func nice(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic returns an axis from the least to the greatest positive value, with some room at both ends.
func logarithmic(values []float64) axis {
	positive := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	if len(positive) == 0 {
		positive = []float64{1}
	}
	from, to := math.Log10(slices.Min(positive)), math.Log10(slices.Max(positive))
	room := max((to-from)*.04, .05)
	from, to = from-room, to+room
	var a axis
	start := 0.0
	if len(positive) < len(values) {
		a.ticks, start = []tick{{0, "0"}}, .08
	}
	a.share = func(v float64) float64 {
		if v <= 0 {
			return 0
		}
		return start + (1-start)*(math.Log10(v)-from)/(to-from)
	}
	for power := math.Floor(from); power <= to; power++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, power)
			if at := math.Log10(v); (m == 1 || to-from <= 3.5) && at >= from && at <= to {
				a.ticks = append(a.ticks, tick{v, short(v)})
			}
		}
	}
	return a
}

// overTime returns an axis of seconds since the Unix epoch, with ticks in UTC.
func overTime(from, to int64) axis {
	whole := max(to-from, 1)
	a := axis{share: func(v float64) float64 { return (v - float64(from)) / float64(whole) }}
	const minute, hour, day, month = 60, 3600, 24 * 3600, 30 * 24 * 3600
	step, most := int64(1), int64(9)
	for _, step = range []int64{
		1, 2, 5, 10, 15, 30, minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute,
		hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 4 * day, 7 * day, 14 * day,
		month, 2 * month, 3 * month, 6 * month, 12 * month, 24 * month, 60 * month, 120 * month, 240 * month,
	} {
		if whole/step < most {
			break
		}
	}
	multiple, months := min(step, day), int(step/month) // steps of several days begin on any day
	t := time.Unix(from+multiple-1, 0).UTC().Truncate(time.Duration(multiple) * time.Second)
	if months > 0 {
		t = time.Date(t.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
	}
	for ; t.Unix() <= to; t = t.AddDate(0, months, 0).Add(time.Duration(step%month) * time.Second) {
		format := "15:04:05"
		switch {
		case months >= 12:
			format = "2006"
		case months > 0:
			format = "Jan 2006"
		case t.Unix()%day == 0:
			format = "2 Jan"
		case step >= minute:
			format = "15:04"
		}
		if t.Unix() >= from {
			a.ticks = append(a.ticks, tick{float64(t.Unix()), t.Format(format)})
		}
	}
	return a
}

// short formats a number for an axis: 20, 1.5k, 3M, 0.01.
func short(v float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.of*.9995 {
			return trimmed(v/unit.of) + unit.name
		}
	}
	return trimmed(v)
}

// trimmed formats v with three significant digits, or as a whole number if that has more.
func trimmed(v float64) string {
	s := strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(max(math.Abs(v), 1e-9))))), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
