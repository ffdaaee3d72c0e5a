package mix

import (
	"cmp"
	"math"
	"slices"
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
	flows []*flow // by component
	last  *flow   // the one whose request was returned last; nil before the first
	left  uint64  // maximum number of requests still to come
}

// A flow is a component with its next request.
type flow struct {
	index int // of the component
	of    *component
	start int64 // in microseconds since the epoch
	clock int64 // the start by the clock of limits' windows
	end   ticks

	next   generator
	stream stream // of the generator
	warp   *warp  // nil if real time is even
	random stream // only for looks, so that they do not affect anything else

	head rawRequest
	time int64 // of head, in microseconds since the epoch; ended if no request is left
}

// Source returns a source of the requests of m.
func (m *Mix) Source() *Source {
	s := &Source{mix: m, left: cmp.Or(m.Requests, 1<<64-1)}
	for i := range m.components {
		s.flows = append(s.flows, m.flow(i, m.start))
	}
	return s
}

// Begin aligns bursts around window boundaries with the clock, which reads now when the traffic begins.
// It must be called before Next.
func (s *Source) Begin(now time.Time) {
	for i, l := range s.flows {
		if l.of.kind.aligned {
			s.flows[i] = s.mix.flow(i, now.UnixMicro())
		}
	}
}

// flow returns the flow of the ith component. clock is the time at the start by the clock of limits'
// windows, in microseconds since the epoch.
func (m *Mix) flow(i int, clock int64) *flow {
	c := &m.components[i]
	from := c.from.Microseconds()
	l := &flow{index: i, of: c, start: m.start + from, clock: clock + from, end: ticksOf(c.to - c.from)}
	l.stream, l.random = newStream(m.Seed, c.Name), newStream(m.Seed, c.Name+" looks")
	if c.swing.period > 0 {
		l.warp = &warp{profile: c.swing.profile(l.start)}
	}
	l.next = c.kind.generator(c.params, l)
	l.advance()
	return l
}

// ended is later than any request.
const ended = math.MaxInt64

// advance generates the flow's next request.
func (l *flow) advance() {
	at := l.end
	if l.next(&l.head) {
		at = l.head.at
		if l.warp != nil {
			at = l.warp.real(at)
		}
	}
	l.time = ended
	if at < l.end {
		l.time = l.start + int64(at/perMicrosecond)
	}
}

// step returns the flow whose head is the next request, or nil if none is left.
func (s *Source) step() *flow {
	if s.left == 0 {
		return nil
	}
	s.left--
	if s.last != nil {
		s.last.advance()
	}
	s.last = slices.MinFunc(s.flows, func(a, b *flow) int { return cmp.Compare(a.time, b.time) })
	if s.last.time == ended {
		s.left = 0
		return nil
	}
	return s.last
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
