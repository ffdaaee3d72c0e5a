package mix

// The kinds whose clients have their own schedules.

import (
	"math/bits"
	"time"
)

// inTurn generates the requests of n clients, each with its own schedule. first returns a client's
// first turn. After each request, following changes t into the client's next turn, and returns the
// look of the request.
func inTurn(n uint64, first func(client uint32) turn, following func(t *turn) (look uint8)) generator {
	turns := make([]turn, n)
	for i := range turns {
		turns[i] = first(uint32(i))
	}
	s := newSchedule(turns)
	return func(a *arrival) bool {
		t := &s[0]
		a.at, a.client = t.at, uint64(t.client)
		a.look = following(t)
		s.down(0)
		return true
	}
}

// onOff describes clients that send evenly for a while and then pause, each with its own phase. The
// rate is that during sending.
type onOff struct {
	members
	on, off time.Duration
}

// All sending clients wait equally long, and so do all pausing ones, so two queues replace the heap of
// other kinds.
func (k *onOff) generator(set *setting) generator {
	gap, cycle := max(ticksOf(k.rate.per)/ticks(k.rate.n), 1), ticksOf(k.on+k.off)
	burst := uint32((ticksOf(k.on) - 1) / gap) // requests of a cycle after its first
	pause := cycle - ticks(burst)*gap
	var begun, waiting []turn
	for client := range uint32(k.n) {
		// The client's cycle began some time ago. Requests before the start are skipped.
		ago := ticks(set.stream.below(uint64(cycle)))
		if sent := (ago + gap - 1) / gap; sent <= ticks(burst) {
			begun = append(begun, turn{at: sent*gap - ago, client: client, left: burst - uint32(sent)})
		} else {
			waiting = append(waiting, turn{at: cycle - ago, client: client, left: burst})
		}
	}
	sending, pausing := newLine(begun, k.n), newLine(waiting, k.n)
	return func(a *arrival) bool {
		from := sending
		if from.n == 0 || pausing.n > 0 && pausing.first().before(from.first()) {
			from = pausing
		}
		t := from.pop()
		a.at, a.client = t.at, uint64(t.client)
		if t.left > 0 {
			sending.push(turn{at: t.at + gap, client: t.client, left: t.left - 1})
		} else {
			pausing.push(turn{at: t.at + pause, client: t.client, left: burst})
		}
		return true
	}
}

// botnet describes many clients that each send evenly, at a rate slightly below a given one.
type botnet struct {
	members
	spread float64 // maximum difference, as a fraction of the rate
}

func (k *botnet) generator(set *setting) generator {
	key, spread := set.stream.next(), uint64(k.spread*one)
	least := max(ticksOf(k.rate.per)/ticks(k.rate.n), 1) + 1
	gap := func(client uint32) ticks {
		slower := scramble(key^uint64(client)) >> 32 * spread >> 32
		hi, lo := bits.Mul64(uint64(least), one)
		gap, _ := bits.Div64(hi, lo, one-slower)
		return ticks(gap)
	}
	return inTurn(k.n, func(client uint32) turn {
		return turn{at: ticks(set.stream.below(uint64(gap(client)))), client: client}
	}, func(t *turn) uint8 {
		t.at += gap(t.client)
		return 0
	})
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

// In a turn of pages, left is twice the number of assets still to come, plus one if the request is
// itself an asset.
func (k *pages) generator(set *setting) generator {
	random, think := &set.stream, rate{1, k.think}.gaps()
	var between mean // assets
	if k.assets > 0 {
		between = rate{k.assets, k.load}.gaps()
	}
	return inTurn(k.n, func(client uint32) turn {
		return turn{at: think.draw(random), client: client}
	}, func(t *turn) (look uint8) {
		left := t.left >> 1
		if t.left&1 == 1 {
			look = assetLook
		} else {
			// From half to one and a half times the mean.
			left = uint32(k.assets-k.assets/2) + uint32(random.below(k.assets/2*2+1))
		}
		if left > 0 {
			t.at, t.left = t.at+between.draw(random), (left-1)<<1|1
		} else {
			t.at, t.left = t.at+think.draw(random), 0
		}
		return look
	})
}
