package chart

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// A Scale is the scale of an axis.
type Scale uint8

const (
	Linear      Scale = iota // from 0
	Logarithmic              // for positive values
	Counts                   // from 0, logarithmic in 1+v
	Elapsed                  // seconds since the beginning
)

// An Axis describes what an axis of a plot measures.
type Axis struct {
	Name   string
	Scale  Scale
	Format func(float64) string // formats a value in tables and tips; nil for a number
}

func (a Axis) text(v float64) string {
	switch {
	case a.Format != nil:
		return a.Format(v)
	case a.Scale == Elapsed:
		return Span(time.Duration(v) * time.Second)
	case v == math.Trunc(v) && v >= 0 && v < 1<<53:
		return Grouped(uint64(v))
	}
	return trimmed(v)
}

// misses reports whether v has no place on the axis.
func (a Axis) misses(v float64) bool { return a.Scale == Logarithmic && v <= 0 }

// holding returns an axis that covers all values.
func (a Axis) holding(values []float64) axis {
	least, greatest := math.Inf(1), 0.0
	for _, v := range values {
		greatest = max(greatest, v)
		if v > 0 || a.Scale != Logarithmic {
			least = min(least, v)
		}
	}
	if math.IsInf(least, 1) {
		least, greatest = 1, 1
	}
	switch a.Scale {
	case Logarithmic:
		return logarithmic(a.Name, least, greatest)
	case Counts:
		return withZero(a.Name, greatest)
	case Elapsed:
		t := overTime(0, int64(math.Ceil(greatest)))
		for i := range t.ticks {
			t.ticks[i].name = a.text(t.ticks[i].at)
		}
		t.name = a.Name
		return t
	}
	return linear(a.Name, greatest)
}

// An axis maps values to positions: share is 0 at its beginning and 1 at its end.
type axis struct {
	name  string
	share func(v float64) float64
	ticks []tick
}

// A tick is a labeled value of an axis.
type tick struct {
	at   float64
	name string
}

// linear returns an axis from 0 to at least greatest.
func linear(name string, greatest float64) axis {
	step := nice(max(greatest, 1) / 4)
	end := step * math.Ceil(max(greatest, 1)/step)
	a := axis{name: name, share: func(v float64) float64 { return v / end }}
	for i := range int(math.Round(end/step)) + 1 {
		v := step * float64(i)
		a.ticks = append(a.ticks, tick{at: v, name: short(v)})
	}
	return a
}

// nice returns the smallest of 1, 2, 5, 10, 20, 50 … that is not less than v.
func nice(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic returns an axis from least to greatest, both positive, with some room at both
// ends.
func logarithmic(name string, least, greatest float64) axis {
	from, to := math.Log10(least), math.Log10(greatest)
	room := max((to-from)*.04, .05)
	from, to = from-room, to+room
	a := axis{name: name, share: func(v float64) float64 { return (math.Log10(v) - from) / (to - from) }}
	for power := math.Floor(from); power <= to; power++ {
		for _, m := range []float64{1, 2, 5} {
			if m > 1 && to-from > 3.5 {
				continue
			}
			if v := m * math.Pow(10, power); math.Log10(v) >= from-1e-9 && math.Log10(v) <= to+1e-9 {
				a.ticks = append(a.ticks, tick{at: v, name: short(v)})
			}
		}
	}
	return a
}

// withZero returns an axis of counts from 0 to greatest, logarithmic in 1+v.
func withZero(name string, greatest float64) axis {
	end := math.Log1p(max(greatest, 1)) * 1.03
	a := axis{name: name, share: func(v float64) float64 { return math.Log1p(v) / end }, ticks: []tick{{at: 0, name: "0"}}}
	for v := 1.0; math.Log1p(v) <= end; v *= 10 {
		a.ticks = append(a.ticks, tick{at: v, name: short(v)})
	}
	return a
}

// overTime returns an axis of seconds since the Unix epoch, with ticks in UTC.
func overTime(from, to int64) axis {
	whole := max(to-from, 1)
	a := axis{share: func(v float64) float64 { return (v - float64(from)) / float64(whole) }}
	const minute, hour, day = 60, 3600, 24 * 3600
	const most = 9
	for _, step := range []int64{
		1, 2, 5, 10, 15, 30, minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute,
		hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 4 * day, 7 * day, 14 * day,
	} {
		if whole/step >= most {
			continue
		}
		multiple := min(step, day) // steps of several days begin on any day
		for at := (from + multiple - 1) / multiple * multiple; at <= to; at += step {
			format := "15:04:05"
			if at%day == 0 {
				format = "2 Jan"
			} else if step >= minute {
				format = "15:04"
			}
			a.ticks = append(a.ticks, tick{at: float64(at), name: time.Unix(at, 0).UTC().Format(format)})
		}
		return a
	}
	months := 1
	for _, n := range []int{1, 2, 3, 6, 12, 24, 60, 120} {
		months = n
		if whole/(30*day*int64(n)) < most {
			break
		}
	}
	first := time.Unix(from, 0).UTC()
	for t := time.Date(first.Year(), 1, 1, 0, 0, 0, 0, time.UTC); t.Unix() <= to; t = t.AddDate(0, months, 0) {
		if t.Unix() < from {
			continue
		}
		name := t.Format("Jan 2006")
		if months >= 12 {
			name = t.Format("2006")
		}
		a.ticks = append(a.ticks, tick{at: float64(t.Unix()), name: name})
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

// trimmed formats v with three significant digits.
func trimmed(v float64) string {
	s := strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(max(math.Abs(v), 1e-9))))), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
