package mix

import "time"

// A kind is the behaviour of a component.
type kind interface {
	// clients returns the number of clients, or 0 if every request has another.
	clients() uint64

	// generator returns a generator of the requests. It may keep set.
	generator(set *setting) generator

	// skips reports whether the generator follows set.swing by skipping requests, since its
	// times cannot be warped.
	skips() bool
}

// A setting is the input of a generator besides its kind.
type setting struct {
	stream    stream
	start     int64 // by the clock of limits' windows, in microseconds since the epoch
	end       ticks
	swing     *diurnal // nil if the rate is steady
	addresses uint64   // number of the component's addresses
}

// A rate is n requests per duration.
type rate struct {
	n   uint64
	per time.Duration
}

// bent is for kinds whose times can be warped.
type bent struct{}

func (bent) skips() bool { return false }

// members is the number of clients of kinds that have a fixed one.
type members struct{ n uint64 }

func (m members) clients() uint64 { return m.n }

// steady is some clients at the same rate each.
type steady struct {
	bent
	members
	each    rate
	poisson bool
}

func (k *steady) generator(set *setting) generator {
	if k.poisson {
		g := newUniform(set, k.each.per, k.each.n*k.n, k.n)
		return &g
	}
	c := newCadence(ticksOf(k.each.per), k.each.n*k.n)
	return &round{cadence: c, at: -(c.gap + 1) / 2, n: k.n}
}

// round generates evenly spaced requests, one client after the other.
type round struct {
	cadence
	at   ticks
	k, n uint64
}

func (g *round) next(a *arrival) bool {
	g.at += g.cadence.draw()
	a.at, a.client = g.at, g.k
	if g.k++; g.k == g.n {
		g.k = 0
	}
	return true
}

// atRandom generates requests at random times.
type atRandom struct {
	stream
	mean
	at     ticks
	client func(*stream) uint64 // draws one
	most   uint64               // clients; no request follows that of another one
}

func (g *atRandom) next(a *arrival) bool {
	g.at += g.mean.draw(&g.stream)
	a.at, a.client = g.at, g.client(&g.stream)
	return a.client < g.most
}

// newUniform returns a generator of requests at random times, n in per, each of a random client.
func newUniform(set *setting, per time.Duration, n, clients uint64) atRandom {
	return atRandom{
		stream: set.stream, mean: newMean(ticksOf(per), n), most: clients,
		client: func(s *stream) uint64 { return s.below(clients) },
	}
}

// zipf is clients with Zipf-distributed shares: that of the rth busiest is proportional to
// (r+offset)^−exponent. Client 0 is the busiest.
type zipf struct {
	bent
	members
	total            rate
	exponent, offset float64
}

func (k *zipf) generator(set *setting) generator {
	shares := newAlias(zipfWeights(k.n, k.exponent, k.offset))
	return &atRandom{
		stream: set.stream, mean: newMean(ticksOf(k.total.per), k.total.n), most: k.n,
		client: func(s *stream) uint64 { return uint64(shares.draw(s)) },
	}
}

// randomKeys is a flood in which every request has its own client, as long as there are addresses.
type randomKeys struct {
	bent
	total rate
}

func (k *randomKeys) clients() uint64 { return 0 }

func (k *randomKeys) generator(set *setting) generator {
	next := uint64(0)
	return &atRandom{
		stream: set.stream, mean: newMean(ticksOf(k.total.per), k.total.n), most: set.addresses,
		client: func(*stream) uint64 {
			next++
			return next - 1
		},
	}
}

// flashCrowd is clients that come all at once, and leave again.
type flashCrowd struct {
	bent
	members
	peak  rate // of all
	shape crowd
}

func (k *flashCrowd) generator(set *setting) generator {
	return &flash{newUniform(set, k.peak.per, k.peak.n, k.n), warp{profile: &k.shape}}
}

type flash struct {
	atRandom
	warp warp
}

func (g *flash) next(a *arrival) bool {
	g.atRandom.next(a)
	a.at = g.warp.real(a.at)
	return a.at != never
}
