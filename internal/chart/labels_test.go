package chart

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"unicode/utf8"
)

// Labels cover neither each other nor a point, nor do they leave the drawing, however many there are.
func TestLabelsDoNotOverlap(t *testing.T) {
	element := regexp.MustCompile(`<svg x="([^"]*)%" y="([^"]*)%">.*<text class="halo" x="([^"]*)" y="([^"]*)">([^<]*)</text></svg>`)
	random := rand.New(rand.NewPCG(1, 2))
	written := 0
	for range 50 {
		var labels []label
		var points []point
		for i := range 30 {
			at := point{random.Float64(), random.Float64()}
			labels, points = append(labels, label{at, "halo", fmt.Sprint("label ", i)}), append(points, at)
		}
		d := &drawing{}
		d.labels(labels, points)
		var texts [][4]float64 // left, top, right, bottom, in pixels
		for _, m := range element.FindAllStringSubmatch(string(d.Marks()), -1) {
			var n [4]float64
			for i := range n {
				n[i], _ = strconv.ParseFloat(m[i+1], 64)
			}
			left, base := n[0]/100*labeledWidth+n[2], n[1]/100*labeledHeight+n[3]
			texts = append(texts, [4]float64{left, base - 10, left + 7.2*float64(utf8.RuneCountInString(m[5])), base + 2})
		}
		written += len(texts)
		const rounding = .2
		for i, a := range texts {
			if a[0] < 0 || a[2] > labeledWidth+rounding {
				t.Errorf("label %d is outside the drawing: %v", i, a)
			}
			for _, p := range points {
				if x, y := p.x*labeledWidth, (1-p.y)*labeledHeight; a[0]+rounding < x && x < a[2]-rounding && a[1]+rounding < y && y < a[3]-rounding {
					t.Errorf("label %d at %v covers the point %v, %v", i, a, x, y)
				}
			}
			for _, b := range texts[:i] {
				if a[0]+rounding < b[2] && b[0]+rounding < a[2] && a[1]+rounding < b[3] && b[1]+rounding < a[3] {
					t.Errorf("labels at %v and %v overlap", a, b)
				}
			}
		}
	}
	if written < 50*20 {
		t.Errorf("%d of %d labels were written, want most", written, 50*30)
	}
}
