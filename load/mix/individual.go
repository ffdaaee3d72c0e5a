package mix

// The kinds whose clients have their own schedules.

import (
	"math/bits"
	"time"
)

// onOff describes clients that send evenly for a while and then pause, each with its own phase. The
// rate is that during sending.
type onOff struct {
	members
	on, off time.Duration
}

func (k *onOff) generator(set *setting) generator {
	gap, cycle := max(ticksOf(k.rate.per)/ticks(k.rate.n), 1), ticksOf(k.on+k.off)
	burst := uint32((ticksOf(k.on) - 1) / gap)
	g := &pulses{gap: gap, pause: cycle - ticks(burst)*gap, burst: burst}
	var sending, pausing []turn
	for client := range uint32(k.n) {
		// The client's cycle began some time ago. Requests before the start are skipped.
		ago := ticks(set.stream.below(uint64(cycle)))
		if sent := (ago + gap - 1) / gap; sent <= ticks(burst) {
			sending = append(sending, turn{at: sent*gap - ago, client: client, left: burst - uint32(sent)})
		} else {
			pausing = append(pausing, turn{at: cycle - ago, client: client, left: burst})
		}
	}
	g.sending, g.pausing = newLine(sending, k.n), newLine(pausing, k.n)
	return g
}

// pulses generates the requests of onOff. All sending clients wait equally long, and so do all
// pausing ones, so two queues replace the heap of other kinds.
type pulses struct {
	sending, pausing line
	gap, pause       ticks
	burst            uint32 // requests of a cycle after its first
}

func (g *pulses) next(a *arrival) bool {
	from := &g.sending
	if from.n == 0 || g.pausing.n > 0 && g.pausing.first().before(from.first()) {
		from = &g.pausing
	}
	t := from.pop()
	a.at, a.client = t.at, uint64(t.client)
	if t.left > 0 {
		g.sending.push(turn{at: t.at + g.gap, client: t.client, left: t.left - 1})
	} else {
		g.pausing.push(turn{at: t.at + g.pause, client: t.client, left: g.burst})
	}
	return true
}

// botnet describes many clients that each send evenly, at a rate slightly below a given one.
type botnet struct {
	members
	spread float64 // maximum difference, as a fraction of the rate
}

func (k *botnet) generator(set *setting) generator {
	g := &crawl{
		key:    set.stream.next(),
		least:  max(ticksOf(k.rate.per)/ticks(k.rate.n), 1) + 1,
		spread: uint64(k.spread * one),
	}
	turns := make([]turn, k.n)
	for i := range turns {
		turns[i] = turn{at: ticks(set.stream.below(uint64(g.gap(uint32(i))))), client: uint32(i)}
	}
	g.schedule = newSchedule(turns)
	return g
}

// crawl generates the requests of botnet.
type crawl struct {
	schedule
	key    uint64
	least  ticks  // the gap at the given rate
	spread uint64 // in units of 2⁻³²
}

// gap returns the time between a client's requests.
func (g *crawl) gap(client uint32) ticks {
	slower := scramble(g.key^uint64(client)) >> 32 * g.spread >> 32
	hi, lo := bits.Mul64(uint64(g.least), one)
	gap, _ := bits.Div64(hi, lo, one-slower)
	return ticks(gap)
}

func (g *crawl) next(a *arrival) bool {
	t := &g.schedule[0]
	a.at, a.client = t.at, uint64(t.client)
	t.at += g.gap(t.client)
	g.down(0)
	return true
}

// pages describes clients that load a page with a burst of assets, then think.
type pages struct {
	members
	think, load time.Duration // means
	assets      uint64        // mean
}

// The looks of pages.
const (
	pageLook = iota
	assetLook
)

func (k *pages) generator(set *setting) generator {
	g := &views{
		stream: set.stream,
		think:  rate{1, k.think}.gaps(),
		assets: k.assets,
	}
	if k.assets > 0 {
		g.between = rate{k.assets, k.load}.gaps()
	}
	turns := make([]turn, k.n)
	for i := range turns {
		turns[i] = turn{at: g.think.draw(&g.stream), client: uint32(i)}
	}
	g.schedule = newSchedule(turns)
	return g
}

// views generates the requests of pages. In a turn, left is twice the number of assets still to
// come, plus one if the request is itself an asset.
type views struct {
	schedule
	stream
	think, between mean
	assets         uint64
}

func (g *views) next(a *arrival) bool {
	t := &g.schedule[0]
	a.at, a.client, a.look = t.at, uint64(t.client), pageLook
	left := t.left >> 1
	if t.left&1 == 1 {
		a.look = assetLook
	} else {
		// From half to one and a half times the mean.
		left = uint32(g.assets-g.assets/2) + uint32(g.below(g.assets/2*2+1))
	}
	if left > 0 {
		t.at, t.left = t.at+g.between.draw(&g.stream), (left-1)<<1|1
	} else {
		t.at, t.left = t.at+g.think.draw(&g.stream), 0
	}
	g.down(0)
	return true
}
