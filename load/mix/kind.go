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
		return atRandom(set, rate{k.rate.n * k.n, k.rate.per}, k.n, uniform(k.n))
	}
	gaps := newCadence(ticksOf(k.rate.per), k.rate.n*k.n)
	at, client := -(gaps.gap+1)/2, k.n-1
	return func(a *arrival) bool {
		if client++; client == k.n {
			client = 0
		}
		at += gaps.draw()
		a.at, a.client = at, client
		return true
	}
}

// atRandom generates requests at random times, from clients that the function client draws. It ends
// at the first one whose number is n or more.
func atRandom(set *setting, rate rate, n uint64, client func(*stream) uint64) generator {
	gap, at := rate.gaps(), ticks(0)
	return func(a *arrival) bool {
		at += gap.draw(&set.stream)
		a.at, a.client = at, client(&set.stream)
		return a.client < n
	}
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
	return atRandom(set, k.rate, k.n, func(s *stream) uint64 { return uint64(shares.draw(s)) })
}

// randomKeys is a flood in which every request has its own client, until addresses run out.
type randomKeys struct{ together }

func (k *randomKeys) generator(set *setting) generator {
	next := uint64(0)
	return atRandom(set, k.rate, set.addresses, func(*stream) uint64 {
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
	even := atRandom(set, k.rate, k.n, uniform(k.n))
	shape := &warp{profile: &crowd{ticksOf(k.ramp), ticksOf(k.hold), ticksOf(k.decay)}}
	return func(a *arrival) bool {
		even(a)
		a.at = shape.real(a.at)
		return a.at != never
	}
}
