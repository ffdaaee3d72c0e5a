package judge

// epoch is how long a client keeps its share of a key, in microseconds. Epochs end at different times for different
// keys, and only nodes know when.
const epoch = 600_000_000

// steady bounds the estimate of a key above which the requests of one client are shed. The bound is at least the
// greatest estimate at which a request passed, and less than the least at which one was refused.
type steady struct {
	requests        int
	passed, refused level
}

// A level is an estimate at the time of a request, as a multiple of the threshold. If the estimate is 0, it is unset.
type level struct {
	estimate float64
	from, to int64 // when the request was decided, by the nodes' clocks
}

// A change is a pair of a client's requests, one passed and one refused, that no single bound of steady explains, so
// an epoch must have ended between them.
type change struct {
	client   int32
	from, to int64
}

// observe adds a request that was decided by this key alone. l is the least possible estimate if it passed, or the
// greatest possible one if it was refused.
func (y *tally) observe(client int32, passes bool, l level) {
	s := y.steady[client]
	if s == nil {
		s = &steady{}
		y.steady[client] = s
	}
	s.requests++
	other := s.passed
	if passes {
		other = s.refused
	}
	if other.estimate > 0 && (passes && l.estimate >= other.estimate || !passes && l.estimate <= other.estimate) {
		y.changes = append(y.changes, change{client, min(l.from, other.from), max(l.to, other.to)})
		*s = steady{requests: s.requests}
	}
	switch {
	case passes && l.estimate >= s.passed.estimate:
		s.passed = l
	case !passes && (s.refused.estimate == 0 || l.estimate <= s.refused.estimate):
		s.refused = l
	}
}

// unexplained returns the changes that no end of an epoch explains. Epochs are placed so that they explain as many
// changes as possible; one of them can be assumed to end with a change.
func (y *tally) unexplained() []change {
	explained := func(c change, end int64) bool { return floor(c.to-end, epoch) > floor(c.from-end-1, epoch) }
	most, best := 0, int64(0)
	for _, last := range y.changes[:min(len(y.changes), maxCandidates)] {
		n := 0
		for _, c := range y.changes {
			if explained(c, last.to) {
				n++
			}
		}
		if n > most {
			most, best = n, last.to
		}
	}
	return without(y.changes, func(c change) bool { return explained(c, best) })
}

// byRequest adds a fault if a shedding rule both refuses and passes requests of the same clients although the estimate
// did not require it.
func (v *investigation) byRequest(id string) {
	var found []change
	clients, changed := 0, map[int32]bool{}
	for n, b := range v.last.states {
		if v.last.b.keys[n].rule.ID != id || b == nil || b.tally == nil {
			continue
		}
		for _, s := range b.tally.steady {
			if s.requests > 1 {
				clients++
			}
		}
		for _, c := range b.tally.unexplained() {
			found = append(found, c)
			changed[c.client] = true
		}
	}
	if len(changed) >= minEvidence && 100*len(changed) > clients {
		v.note(ShedsByRequest, uint64(len(found)),
			"rule %s refuses some requests of a client and passes others, although the estimate of its network or label did not require it: of %d clients of keys above the threshold, %d were treated like this", id, clients, len(changed))
	}
}
