package mix

import (
	"cmp"
	"slices"
)

// A schedule is a heap of the next requests of all clients, or of all components, ordered by time
// and then by client. Each node has four children.
type schedule []turn

// A line is a ring of clients, pushed in the order of their turns.
type line struct {
	turns []turn
	at, n int
}

// newLine returns a line with the given turns, in any order, and capacity.
func newLine(turns []turn, room uint64) *line {
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.client, b.client)) })
	l := &line{turns: make([]turn, room), n: len(turns)}
	copy(l.turns, turns)
	return l
}

// first returns the first turn. The line must not be empty.
func (l *line) first() *turn { return &l.turns[l.at] }

func (l *line) pop() turn {
	t := l.turns[l.at]
	if l.n--; l.at+1 < len(l.turns) {
		l.at++
	} else {
		l.at = 0
	}
	return t
}

func (l *line) push(t turn) {
	end := l.at + l.n
	if end >= len(l.turns) {
		end -= len(l.turns)
	}
	l.turns[end] = t
	l.n++
}

// A turn is the next request of a client.
type turn struct {
	at     ticks
	client uint32
	left   uint32 // state of the generator
}

func (t *turn) before(o *turn) bool { return t.at < o.at || t.at == o.at && t.client < o.client }

// newSchedule makes a heap of turns.
func newSchedule(turns []turn) schedule {
	s := schedule(turns)
	for i := (len(s) - 2) / 4; i >= 0; i-- {
		s.down(i)
	}
	return s
}

// down restores the order below i, whose turn may be later than before.
func (s schedule) down(i int) {
	if i == len(s) {
		return
	}
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
