package page

import (
	"time"

	"github.com/edgelimit/edge/pop/admin"
)

// A told is a key in a story.
type told struct {
	admin.KeyState
	Of row // its mitigation, if there is one
}

// An ask is a rule for which an address is not enough, and the target to use instead.
type ask struct {
	admin.Need
	Target string
}

// story renders the state of a client.
func (p *Page) story(target string, now time.Time) part {
	values := admin.ParseTarget(target)
	e, err := p.o.Operations.Explain(values)
	problem := ""
	if err != nil {
		e, problem = admin.Explanation{}, sentence(err.Error())
	}
	var keys []told
	for _, k := range e.Keys {
		t := told{KeyState: k}
		if k.Mitigation != nil {
			t.Of = rowOf(*k.Mitigation, now)
		}
		keys = append(keys, t)
	}
	var asks []ask
	for _, n := range e.Needs {
		asks = append(asks, ask{n, n.Target(values["ip"])})
	}
	return write("story", "story", struct {
		Target, Problem string
		Keys            []told
		Asks            []ask
		Listed          *admin.Listed
	}{target, problem, keys, asks, e.Listed})
}

// Refused reports whether the key is mitigated now.
func (t told) Refused() bool {
	return t.Mitigation != nil && !t.Mitigation.Lifted && !t.Mitigation.Ineffective
}

// bar returns how much of a threshold is used, in percent.
func bar(l admin.LimitState) int {
	if l.Threshold == 0 {
		return 100
	}
	return int(min(100, 100*max(0, l.Estimate)/float64(l.Threshold)))
}
