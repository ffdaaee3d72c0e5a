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
	swing     *diurnal // nil if there is none
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

// steady is some clients at the same rate each.
type steady struct {
	bent
	n       uint64
	each    rate
	poisson bool
}

func (k *steady) clients() uint64 { return k.n }

func (k *steady) generator(set *setting) generator {
	per, n := ticksOf(k.each.per), k.each.n*k.n
	if k.poisson {
		return &uniform{stream: set.stream, mean: newMean(per, n), n: k.n}
	}
	c := newCadence(per, n)
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

// uniform generates requests at random times, each of a random client.
type uniform struct {
	stream
	mean
	at ticks
	n  uint64
}

func (g *uniform) next(a *arrival) bool {
	g.at += g.mean.draw(&g.stream)
	a.at, a.client = g.at, g.below(g.n)
	return true
}

// zipf is clients with Zipf-distributed shares: that of the rth busiest is proportional to
// (r+offset)^−exponent. Client 0 is the busiest.
type zipf struct {
	bent
	n                uint64
	total            rate
	exponent, offset float64
}

func (k *zipf) clients() uint64 { return k.n }

func (k *zipf) generator(set *setting) generator {
	return &ranked{
		stream: set.stream,
		mean:   newMean(ticksOf(k.total.per), k.total.n),
		shares: newAlias(zipfWeights(k.n, k.exponent, k.offset)),
	}
}

// ranked generates requests at random times, of clients with different shares.
type ranked struct {
	stream
	mean
	at     ticks
	shares alias
}

func (g *ranked) next(a *arrival) bool {
	g.at += g.mean.draw(&g.stream)
	a.at, a.client = g.at, uint64(g.shares.draw(&g.stream))
	return true
}

// randomKeys is a flood in which every request has its own client, as long as there are addresses.
type randomKeys struct {
	bent
	total rate
}

func (k *randomKeys) clients() uint64 { return 0 }

func (k *randomKeys) generator(set *setting) generator {
	return &counted{stream: set.stream, mean: newMean(ticksOf(k.total.per), k.total.n), most: set.addresses}
}

// counted generates requests at random times, each of the next client.
type counted struct {
	stream
	mean
	at      ticks
	k, most uint64
}

func (g *counted) next(a *arrival) bool {
	g.at += g.mean.draw(&g.stream)
	a.at, a.client = g.at, g.k
	g.k++
	return g.k <= g.most
}

// flashCrowd is clients that come all at once, and leave again.
type flashCrowd struct {
	bent
	n     uint64
	peak  rate // of all
	shape crowd
}

func (k *flashCrowd) clients() uint64 { return k.n }

func (k *flashCrowd) generator(set *setting) generator {
	return &flash{
		uniform: uniform{stream: set.stream, mean: newMean(ticksOf(k.peak.per), k.peak.n), n: k.n},
		warp:    warp{profile: &k.shape},
	}
}

type flash struct {
	uniform
	warp warp
}

func (g *flash) next(a *arrival) bool {
	g.uniform.next(a)
	a.at = g.warp.real(a.at)
	return a.at != never
}
