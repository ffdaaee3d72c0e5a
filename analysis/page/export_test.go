package page

// Ticks returns what axes write: over time, over counts from 0, over logarithms.
func Ticks(kind string, from, to float64) (names []string) {
	var a axis
	switch kind {
	case "time":
		a = overTime(int64(from), int64(to))
	case "linear":
		a = linear("", to)
	case "logarithmic":
		a = logarithmic("", from, to)
	case "with zero":
		a = withZero("", to)
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
