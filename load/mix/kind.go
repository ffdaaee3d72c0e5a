package mix

import (
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A kind is the behaviour of a component.
type kind interface {
	// clients returns the number of clients, or 0 if every request has a different one.
	clients() uint64

	// generator returns a generator of the requests. It may keep set.
	generator(set *setting) generator

	// skips reports whether the generator follows set.swing by skipping requests, because its
	// times cannot be warped.
	skips() bool

	// keys returns the kind's keys in files. They read into the kind.
	keys(r *reader) []strictyaml.Field

	// check sets defaults for keys that node lacks, and records errors in the others.
	check(r *reader, node *yaml.Node)
}

// A setting is what a generator needs besides its kind.
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

// gaps returns the mean gap between requests at random times.
func (r rate) gaps() mean { return newMean(ticksOf(r.per), r.n) }

// members holds what most kinds have: a number of clients and the rate of each.
type members struct {
	n    uint64 // 0 if every request has a different client
	rate rate
}

func (m *members) clients() uint64 { return m.n }

func (m *members) skips() bool { return false }

// together is like members, but the rate is that of all clients together.
type together struct{ members }

// steady describes clients that all send at the same rate.
type steady struct {
	members
	poisson bool
}

// guessing is steady by another name, with other defaults.
type guessing struct{ steady }

func (k *steady) generator(set *setting) generator {
	if k.poisson {
		return atRandomly(set, rate{k.rate.n * k.n, k.rate.per}, k.n, uniform(k.n))
	}
	c := newCadence(ticksOf(k.rate.per), k.rate.n*k.n)
	return &round{cadence: c, at: -(c.gap + 1) / 2, n: k.n}
}

// round generates evenly spaced requests of the clients in turn.
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
	client func(*stream) uint64 // draws a client
	most   uint64               // maximum number of clients; it ends at the first request beyond
}

func (g *atRandom) next(a *arrival) bool {
	g.at += g.mean.draw(&g.stream)
	a.at, a.client = g.at, g.client(&g.stream)
	return a.client < g.most
}

// atRandomly returns a generator of requests at random times.
func atRandomly(set *setting, rate rate, most uint64, client func(*stream) uint64) *atRandom {
	return &atRandom{stream: set.stream, mean: rate.gaps(), client: client, most: most}
}

// uniform draws one of n clients.
func uniform(n uint64) func(*stream) uint64 {
	return func(s *stream) uint64 { return s.below(n) }
}

// zipf describes clients with Zipf-distributed shares: the share of the rth busiest is proportional
// to (r+offset)^−exponent. Client 0 is the busiest.
type zipf struct {
	together
	exponent, offset float64
}

func (k *zipf) generator(set *setting) generator {
	shares := newAlias(zipfWeights(k.n, k.exponent, k.offset))
	return atRandomly(set, k.rate, k.n, func(s *stream) uint64 { return uint64(shares.draw(s)) })
}

// randomKeys is a flood in which every request has its own client, until addresses run out.
type randomKeys struct{ together }

func (k *randomKeys) generator(set *setting) generator {
	next := uint64(0)
	return atRandomly(set, k.rate, set.addresses, func(*stream) uint64 {
		next++
		return next - 1
	})
}

// flashCrowd describes clients that arrive all at once and leave again. The rate is that of the peak.
type flashCrowd struct {
	together
	ramp, hold, decay time.Duration
}

func (k *flashCrowd) generator(set *setting) generator {
	shape := &crowd{ticksOf(k.ramp), ticksOf(k.hold), ticksOf(k.decay)}
	return &flash{*atRandomly(set, k.rate, k.n, uniform(k.n)), warp{profile: shape}}
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
