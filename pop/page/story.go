package page

import (
	"time"

	"github.com/edgelimit/edge/pop/admin"
)

// story renders the state of a client.
func (p *Page) story(target string, now time.Time) part {
	values := admin.ParseTarget(target)
	e, err := p.o.Operations.Explain(values)
	problem := ""
	if err != nil {
		e, problem = admin.Explanation{}, sentence(err.Error())
	}
	return write("story", "story", struct {
		Target, Problem, IP string
		Now                 time.Time
		admin.Explanation
	}{target, problem, values["ip"], now, e})
}

// bar returns how much of a threshold is used, in percent.
func bar(l admin.LimitState) int {
	if l.Threshold == 0 {
		return 100
	}
	return int(min(100, 100*max(0, l.Estimate)/float64(l.Threshold)))
}
