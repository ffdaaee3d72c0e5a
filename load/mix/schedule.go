package mix

// A schedule is clients that each have a next request, the earliest first: a heap with
// four children to a node, ordered by time and then by client.
type schedule []turn

// A turn is the next request of a client.
type turn struct {
	at     ticks
	client uint32
	left   uint32 // what a generator wants to remember
}

func (t *turn) before(o *turn) bool { return t.at < o.at || t.at == o.at && t.client < o.client }

// newSchedule puts turns in order.
func newSchedule(turns []turn) schedule {
	s := schedule(turns)
	for i := (len(s) - 2) / 4; i >= 0; i-- {
		s.down(i)
	}
	return s
}

// down restores the order below i, whose turn may be later than before.
func (s schedule) down(i int) {
	moved := s[i]
	for {
		child := 4*i + 1
		if child >= len(s) {
			break
		}
		least := child
		for other := child + 1; other < min(child+4, len(s)); other++ {
			if s[other].before(&s[least]) {
				least = other
			}
		}
		if !s[least].before(&moved) {
			break
		}
		s[i] = s[least]
		i = least
	}
	s[i] = moved
}
