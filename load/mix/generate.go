package mix

import "container/heap"

// A generator sets a to the next request of a component, in order of time, and returns false if none
// is left. The request may be after the component's end.
type generator func(a *rawRequest) bool

// A rawRequest is a request as a generator returns it.
type rawRequest struct {
	at     ticks  // in even time, see warp
	client uint64 // within its component
	look   uint8  // index in the looks of its component
}

// steady generates the requests of clients that all send at the same rate.
func (p *params) steady(l *flow) generator {
	if p.poisson {
		return p.poissonian(l)
	}
	per, n, made := ticksOf(p.rate.per), p.rate.n*p.clients, uint64(0)
	half := (portion(per, 1, n) + 1) / 2 // of a gap
	return func(a *rawRequest) bool {
		a.client = made % p.clients
		made++
		a.at = portion(per, made, n) - half
		return true
	}
}

// poissonian is like steady at random times.
func (p *params) poissonian(l *flow) generator {
	return atRandom(l, rate{p.rate.n * p.clients, p.rate.per}, uniform(p.clients))
}

// atRandom generates requests at random times, from clients that the function client draws. It ends
// when that returns a number that no client has.
func atRandom(l *flow, rate rate, client func(*stream) uint64) generator {
	gap, at := rate.gaps(), ticks(0)
	return func(a *rawRequest) bool {
		at += gap.draw(&l.stream)
		a.at, a.client = at, client(&l.stream)
		return a.client < l.of.Clients
	}
}

// gaps returns the mean gap between requests at random times.
func (r rate) gaps() mean { return mean(ticksOf(r.per)) / mean(r.n) }

// uniform draws one of n clients.
func uniform(n uint64) func(*stream) uint64 {
	return func(s *stream) uint64 { return s.below(n) }
}

// zipf generates the requests of clients with Zipf-distributed shares: the share of the rth busiest is
// proportional to (r+offset)^−exponent. Client 0 is the busiest.
func (p *params) zipf(l *flow) generator {
	shares := newAlias(zipfWeights(p.clients, p.exponent, p.offset))
	return atRandom(l, p.rate, func(s *stream) uint64 { return uint64(shares.draw(s)) })
}

// inOrder generates requests at random times from clients that take turns until each has sent its requests. In a flood
// every request has its own client, until addresses run out.
func (p *params) inOrder(l *flow) generator {
	turn, n := uint64(0), l.of.Clients
	return atRandom(l, p.rate, func(*stream) uint64 {
		if turn++; turn > n*p.requests {
			return n // all have sent their requests
		}
		return (turn - 1) % n
	})
}

// flashCrowd generates the requests of clients that suddenly arrive and then leave. The rate is that
// of the peak.
func (p *params) flashCrowd(l *flow) generator {
	even := atRandom(l, p.rate, uniform(p.clients))
	shape := &warp{profile: crowd(ticksOf(p.ramp), ticksOf(p.hold), ticksOf(p.decay))}
	return func(a *rawRequest) bool {
		even(a)
		a.at = shape.real(a.at)
		return a.at != never
	}
}

// boundary generates the requests of clients that burst around the boundaries of a limit's windows: they
// send half of their requests just before a boundary and half just after it.
func (p *params) boundary(l *flow) generator {
	step := p.period.Microseconds() * p.every
	first := l.clock + p.width.Microseconds()/2 // the earliest boundary whose burst begins after the component does
	boundary := ticks((first+step-1)/step*step-l.clock) * perMicrosecond
	width, all := ticksOf(p.width), p.clients*p.requests
	sent := uint64(0) // requests of this burst
	return func(a *rawRequest) bool {
		if boundary >= l.end {
			return false
		}
		a.at, a.client = boundary-width/2+portion(width, 2*sent+1, 2*all), sent%p.clients
		if sent++; sent == all {
			sent, boundary = 0, boundary+ticks(step)*perMicrosecond
		}
		return true
	}
}

// A schedule is a heap of the next requests of all clients, ordered by time and then by client: see container/heap.
type schedule []turn

// A turn is the next request of a client.
type turn struct {
	at     ticks
	client uint32
	left   uint32 // state of the generator
}

func (s schedule) Len() int      { return len(s) }
func (s schedule) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

func (s schedule) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].client < s[j].client
}

// Push and Pop are not called: every client has a next request from the start.
func (s schedule) Push(any) {}
func (s schedule) Pop() any { return nil }

// inTurn generates the requests of n clients, each with its own schedule. first returns a client's
// first turn. After each request, following changes t into the client's next turn, and returns the
// look of the request.
func inTurn(n uint64, first func(client uint32) turn, following func(t *turn) (look uint8)) generator {
	s := make(schedule, n)
	for i := range s {
		s[i] = first(uint32(i))
	}
	heap.Init(&s)
	return func(a *rawRequest) bool {
		t := &s[0]
		a.at, a.client = t.at, uint64(t.client)
		a.look = following(t)
		heap.Fix(&s, 0)
		return true
	}
}

// onOff generates the requests of clients that send evenly for a while and then pause, each with its own
// phase. The rate applies while they send.
func (p *params) onOff(l *flow) generator {
	gap, cycle := max(ticksOf(p.rate.per)/ticks(p.rate.n), 1), ticksOf(p.on+p.off)
	burst := uint32((ticksOf(p.on) - 1) / gap) // requests of a cycle after its first
	return inTurn(p.clients, func(client uint32) turn {
		// The client's cycle began some time ago. Requests before the start are skipped.
		ago := ticks(l.stream.below(uint64(cycle)))
		if sent := (ago + gap - 1) / gap; sent <= ticks(burst) {
			return turn{at: sent*gap - ago, client: client, left: burst - uint32(sent)}
		}
		return turn{at: cycle - ago, client: client, left: burst}
	}, func(t *turn) uint8 {
		if t.left > 0 {
			t.at, t.left = t.at+gap, t.left-1
		} else {
			t.at, t.left = t.at+cycle-ticks(burst)*gap, burst
		}
		return 0
	})
}

// botnet generates the requests of many clients that each send evenly, at a rate slightly below a given one.
func (p *params) botnet(l *flow) generator {
	key := l.stream.next()
	least := float64(max(ticksOf(p.rate.per)/ticks(p.rate.n), 1) + 1)
	gap := func(client uint32) ticks {
		slower := p.spread * float64(Scramble(key^uint64(client))>>32) / (1 << 32)
		return ticks(least / (1 - slower))
	}
	return inTurn(p.clients, func(client uint32) turn {
		return turn{at: ticks(l.stream.below(uint64(gap(client)))), client: client}
	}, func(t *turn) uint8 {
		t.at += gap(t.client)
		return 0
	})
}

// The looks of pages.
const (
	pageLook = iota
	assetLook
)

// pages generates the requests of clients that load a page with a burst of assets, then think. In a turn, left
// is twice the number of assets still to come, plus one if the request is itself an asset.
func (p *params) pages(l *flow) generator {
	random, think := &l.stream, rate{1, p.think}.gaps()
	var between mean // assets
	if p.assets > 0 {
		between = rate{p.assets, p.load}.gaps()
	}
	return inTurn(p.clients, func(client uint32) turn {
		return turn{at: think.draw(random), client: client}
	}, func(t *turn) (look uint8) {
		left := t.left >> 1
		if t.left&1 == 1 {
			look = assetLook
		} else {
			// From half to one and a half times the mean.
			left = uint32(p.assets-p.assets/2) + uint32(random.below(p.assets/2*2+1))
		}
		if left > 0 {
			t.at, t.left = t.at+between.draw(random), (left-1)<<1|1
		} else {
			t.at, t.left = t.at+think.draw(random), 0
		}
		return look
	})
}
