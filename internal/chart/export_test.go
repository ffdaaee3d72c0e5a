package chart

import "slices"

// Ticks returns the labels of an axis whose kind is time, linear, logarithmic or with zero.
func Ticks(kind string, from, to float64) (names []string) {
	var a axis
	switch kind {
	case "time":
		a = overTime(int64(from), int64(to))
	case "linear":
		a = linear(to)
	case "logarithmic":
		a = logarithmic([]float64{from, to})
	case "with zero":
		a = logarithmic([]float64{from, 1, to})
	}
	if !slices.IsSortedFunc(a.ticks, func(x, y tick) int { return int(1e9*a.share(x.at) - 1e9*a.share(y.at)) }) {
		names = append(names, "not in order")
	}
	for _, t := range a.ticks {
		if s := a.share(t.at); s < -1e-9 || s > 1+1e-9 {
			names = append(names, "outside:"+t.name)
			continue
		}
		names = append(names, t.name)
	}
	return names
}
