package mix

import "time"

// A kind is what a component does, as its file describes it.
type kind interface {
	// clients returns how many clients there are, or 0 where every request has another.
	clients() uint64

	// generator returns what makes the requests. It may keep set.
	generator(set *setting) generator

	// skips reports whether the generator follows set.swing itself, by leaving requests
	// out, since its times cannot be bent.
	skips() bool
}

// A setting is what a generator is given beside its kind.
type setting struct {
	stream    stream
	start     int64 // by the clock of limits' windows, in microseconds since the epoch
	end       ticks
	swing     *diurnal // nil if there is none
	addresses uint64   // how many the component has
}

// A rate is so many requests in so much time.
type rate struct {
	n   uint64
	per time.Duration
}

// bent is for kinds whose times can be bent.
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

// round makes evenly spaced requests, one client after the other.
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

// uniform makes requests at random times, each of any client.
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

// zipf is clients of which the rth busiest has a share like (r+offset)^−exponent of the
// requests. Client 0 is the busiest.
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

// ranked makes requests at random times, of clients with different shares.
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

// randomKeys is a flood in which every request has a client of its own, as long as there
// are addresses.
type randomKeys struct {
	bent
	total rate
}

func (k *randomKeys) clients() uint64 { return 0 }

func (k *randomKeys) generator(set *setting) generator {
	return &counted{stream: set.stream, mean: newMean(ticksOf(k.total.per), k.total.n), most: set.addresses}
}

// counted makes requests at random times, each of the next client.
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

// flashCrowd is clients that come all at once, and go again.
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
