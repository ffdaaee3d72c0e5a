package mix

import (
	"cmp"
	"time"
)

// A Request is one request of a mix. It shares its strings with the mix.
type Request struct {
	Time      int64  // in microseconds since the Unix epoch
	Client    uint64 // see [Mix.Addr]
	Component int    // index in [Mix.Components]
	Method    string
	Host      string
	Path      string
	Agent     string // User-Agent; fixed for a client in a component
	Status    int    // of the origin's answer
}

// A Source generates the requests of a mix one by one, ordered by time and then by component. Its
// memory use grows with the number of clients, not of requests. It is not safe for concurrent use.
// All sources of a mix generate the same requests.
type Source struct {
	mix   *Mix
	flows []*flow  // by component; nil if it has no requests left
	order schedule // of the flows, in microseconds since the epoch; if made, the head of the first was returned last
	made  bool
	left  uint64
}

// A flow is a component with its next request.
type flow struct {
	next   generator
	warp   *warp // nil if real time is even
	start  int64 // in microseconds since the epoch
	end    ticks
	head   emitted
	time   int64 // of head, in microseconds since the epoch
	index  int
	of     *component
	random stream // only for looks, so that they do not affect anything else
}

// Source returns a source of the requests of m.
func (m *Mix) Source() *Source {
	s := &Source{mix: m, flows: make([]*flow, len(m.components)), left: cmp.Or(m.Requests, 1<<64-1)}
	s.add(m.start, func(*kind) bool { return true })
	return s
}

// Begin aligns bursts around window edges with the clock, which reads now when the traffic begins.
// It must be called before Next.
func (s *Source) Begin(now time.Time) {
	s.add(now.UnixMicro(), func(k *kind) bool { return k.aligned })
}

// add adds or replaces the flows of components whose kind is selected. clock is the time at the
// start by the clock of limits' windows, in microseconds since the epoch.
func (s *Source) add(clock int64, selected func(*kind) bool) {
	var turns []turn
	for i := range s.flows {
		if selected(s.mix.components[i].kind) {
			if s.flows[i] = s.mix.flow(i, clock); !s.flows[i].advance() {
				s.flows[i] = nil
			}
		}
		if l := s.flows[i]; l != nil {
			turns = append(turns, turn{at: ticks(l.time), client: uint32(i)})
		}
	}
	s.order = newSchedule(turns)
}

func (m *Mix) flow(i int, clock int64) *flow {
	c := &m.components[i]
	from := c.from.Microseconds()
	l := &flow{index: i, of: c, start: m.start + from, end: ticksOf(c.to - c.from)}
	l.random = newStream(m.Seed, c.Name+" looks")
	set := setting{stream: newStream(m.Seed, c.Name), start: clock + from, end: l.end, addresses: c.Clients}
	if c.swing.period > 0 {
		l.warp = &warp{profile: c.swing.profile(l.start)}
	}
	l.next = c.kind.generator(c.params, &set)
	return l
}

// advance generates the flow's next request, and returns false if none is left.
func (l *flow) advance() bool {
	if !l.next(&l.head) {
		return false
	}
	at := l.head.at
	if l.warp != nil {
		at = l.warp.real(at)
	}
	if at >= l.end {
		return false
	}
	l.time = l.start + int64(at/perMicrosecond)
	return true
}

// step returns the flow whose head is the next request, or nil if none is left.
func (s *Source) step() *flow {
	if s.left == 0 {
		return nil
	}
	if s.made {
		if l := s.flows[s.order[0].client]; l.advance() {
			s.order[0].at = ticks(l.time)
		} else {
			last := len(s.order) - 1
			s.flows[l.index], s.order[0] = nil, s.order[last]
			s.order = s.order[:last]
		}
		s.order.down(0)
	}
	if s.made = len(s.order) > 0; !s.made {
		return nil
	}
	s.left--
	return s.flows[s.order[0].client]
}

// Next sets r to the next request, and returns false if none is left. It does not allocate.
func (s *Source) Next(r *Request) bool {
	l := s.step()
	if l == nil {
		return false
	}
	l.request(r)
	return true
}
