package chart

// Ticks returns the labels of an axis whose kind is time, linear, logarithmic or with zero.
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

// A Box is the area of a text in a drawing.
type Box struct{ box }

// BoxOf returns the area of a text at a position.
func BoxOf(text, class, anchor string, x, y float64) Box {
	w := widthOf(text, class)
	if anchor == "end" {
		x -= w
	}
	return Box{box{x, y - 10, x + w, y + 3}}
}

func (b Box) Within(width, height float64) bool {
	return b.x1 > -.2 && b.y1 > -.2 && b.x2 < width+.2 && b.y2 < height+.2
}

// Overlaps reports whether two boxes overlap by more than a rounding error.
func (b Box) Overlaps(o Box) bool { return b.overlap(o.box) > .2*(b.x2-b.x1) }
