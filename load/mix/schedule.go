package mix

// A schedule is a heap of the next requests of all clients, ordered by time and then by client. Each
// node has four children.
type schedule []turn

// A turn is the next request of a client.
type turn struct {
	at     ticks
	client uint32
	left   uint32 // state of the generator
}

func (t *turn) before(o *turn) bool { return t.at < o.at || t.at == o.at && t.client < o.client }

// order makes a heap of turns in any order.
func (s schedule) order() {
	for i := (len(s) - 2) / 4; i >= 0; i-- {
		s.down(i)
	}
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
