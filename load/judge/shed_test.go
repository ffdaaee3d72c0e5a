package judge_test

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// Rules by client and by network: 100 requests of a /24 in 10 s, and 1000 or 150 of a /16.
const (
	levels = `[{id: client, characteristics: [ip], limits: [{threshold: 20, period: 10s}]},
		{id: block, characteristics: ['network:24/48'], limits: [{threshold: 100, period: 10s}], action: shed},
		{id: wide, characteristics: ['network:16/32'], limits: [{threshold: 1000, period: 10s}], action: shed}]`
	narrow = `[{id: client, characteristics: [ip], limits: [{threshold: 20, period: 10s}]},
		{id: block, characteristics: ['network:24/48'], limits: [{threshold: 100, period: 10s}], action: shed},
		{id: wide, characteristics: ['network:16/32'], limits: [{threshold: 150, period: 10s}], action: shed}]`
	block   = `[{id: block, characteristics: ['network:24/48'], limits: [{threshold: 100, period: 10s}], action: shed}]`
	many    = `[{id: block, characteristics: ['network:24/48'], limits: [{threshold: 15, period: 10s}], min_clients: 25, action: shed}]`
	crowded = `[{id: block, characteristics: ['network:24/48'], limits: [{threshold: 100, period: 10s}], min_clients: 10, action: block}]`
)

// A shedder is a PoP with rules by client and by networks. It estimates from two windows, and learns of a request
// after a lag. Its fields select mistakes.
type shedder struct {
	lag  int64
	seed uint64

	part              map[string]float64 // by rule: the threshold that it uses, as a multiple of the correct one
	whole             bool               // refuses all clients of a key that exceeds the threshold
	never             string             // a rule that never refuses
	wider             bool               // requests that a narrower rule refuses count for wider ones
	deaf              bool               // one node never refuses
	ignoresMinClients bool               // ignores min_clients
	epoch             int64              // how long a client keeps its share; 0 means ten minutes

	windows map[string]map[int64]float64
	clients map[string]map[netip.Addr]int64 // time of the last request of each
}

const tenSeconds = 10_000_000

func (s *shedder) estimate(key string, t int64) float64 {
	w := s.windows[key]
	return w[t/tenSeconds] + w[t/tenSeconds-1]*float64(tenSeconds-t%tenSeconds)/tenSeconds
}

// share returns the position of a client in the order in which a key's clients are refused, from 0 to 1. It
// changes once in the first 40 seconds, at a different time for each key.
func (s *shedder) share(key string, client netip.Addr, t int64) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, key)
	first := began + int64(h.Sum64()%40_000_000)
	fmt.Fprint(h, client, (t-first+600_000_000)/cmp.Or(s.epoch, 600_000_000))
	return float64(rand.New(rand.NewPCG(h.Sum64(), 1)).Uint64()>>11) / (1 << 53)
}

// enough reports whether the key has as many clients as its rule requires.
func (s *shedder) enough(r *rule.Rule, key string, t int64) bool {
	missing := r.MinClients
	if s.ignoresMinClients || missing == 0 {
		return true
	}
	for _, at := range s.clients[key] {
		if at/tenSeconds >= t/tenSeconds-1 {
			if missing--; missing == 0 {
				return true
			}
		}
	}
	return false
}

func (s *shedder) run(requests ledger, rules *rule.Set) {
	s.windows, s.clients = map[string]map[int64]float64{}, map[string]map[netip.Addr]int64{}
	type count struct {
		at   int64
		keys []string
		from netip.Addr
	}
	var queue []count
	known := map[netip.Addr][]string{}
	for i := range requests {
		r := &requests[i]
		t := r.Sent + 500
		for ; len(queue) > 0 && queue[0].at+s.lag < t; queue = queue[1:] {
			for _, key := range queue[0].keys {
				if s.windows[key] == nil {
					s.windows[key], s.clients[key] = map[int64]float64{}, map[netip.Addr]int64{}
				}
				s.windows[key][queue[0].at/tenSeconds]++
				s.clients[key][queue[0].from] = queue[0].at
			}
		}
		a := &r.Answer
		a.Status = 200
		keys := known[r.Addr]
		if keys == nil {
			for _, each := range rules.Rules() {
				prefix, _ := r.Addr.Prefix(map[string]int{"client": 32, "block": 24, "wide": 16}[each.ID])
				keys = append(keys, prefix.String())
			}
			known[r.Addr] = keys
		}
		by := -1
		for n, each := range rules.Rules() {
			key := keys[n]
			threshold := float64(each.Limits[0].Threshold)
			if part, ok := s.part[each.ID]; ok {
				threshold *= part
			}
			e := s.estimate(key, t)
			if e <= threshold || s.never == each.ID || s.deaf && r.Node == 1 || by >= 0 || !s.enough(each, key, t) {
				continue
			}
			if each.Action != rule.Shed || s.whole || s.share(key, r.Addr, t) < 1-threshold/e {
				by = n
				tenths := sort.Search(300, func(n int) bool { return s.estimate(key, t+int64(n)*100_000) <= threshold })
				a.Status, a.Retry, a.Remaining = 429, (tenths+9)/10, 0
			}
		}
		c := count{t, nil, r.Addr}
		for n, each := range rules.Rules() {
			if by < 0 || each.Action == rule.Shed && (n <= by || s.wider) {
				c.keys = append(c.keys, keys[n])
			}
		}
		queue = append(queue, c)
	}
}

// spread returns an attack from four networks of 250 addresses with forty requests a second each, and ten
// networks of legitimate clients with 2.5 requests a second each.
func spread(seed uint64, skewed bool) ledger {
	random := rand.New(rand.NewPCG(seed, 9))
	var l ledger
	for at := began + random.Int64N(tenSeconds); at < began+45*1_000_000; at += int64(random.ExpFloat64() * 1e6 / 185) {
		network, client := random.IntN(320)/80, random.IntN(250)
		attack := random.IntN(370) < 320
		if !attack {
			network, client = 10+random.IntN(10), random.IntN(20)
		} else if at < began+20*1_000_000 && network > 1 {
			continue
		}
		if skewed && attack && random.IntN(4) == 0 {
			client = 0
		}
		addr := netip.AddrFrom4([4]byte{10, 1, byte(network), byte(client)})
		l = append(l, sent{
			Request: judge.Request{
				Sent: at, Done: at + 1000, Client: uint64(network)<<8 | uint64(client), Attack: attack, Node: random.IntN(3),
				Answer: judge.Answer{Status: 200, Expected: 200, Retry: judge.NoRetry, Remaining: -1},
			},
			Properties: judge.Properties{Addr: addr, Method: "GET", Host: "example.com", Target: "/"},
		})
	}
	return l
}

func (s *shedder) score(t *testing.T, rules string, l ledger) *judge.Score {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte("rules: "+rules))
	if err != nil {
		t.Fatal(err)
	}
	s.run(l, set)
	score, err := judge.Judge(l, judge.Options{Rules: set, Lag: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return score
}

// The judge finds no fault with a PoP that sheds correctly, for any secret.
func TestCorrectSheddingHasNoFaults(t *testing.T) {
	for n, rules := range []string{levels, narrow, crowded, many} {
		for _, seed := range []uint64{uint64(n % 3), 3} {
			t.Run(fmt.Sprint(n, seed), func(t *testing.T) {
				t.Parallel()
				s := &shedder{seed: seed, lag: []int64{0, 20_000, 150_000}[seed%3]}
				l := spread(seed, seed%4 == 3)
				score := s.score(t, rules, l)
				var lost, legitimate uint64
				for _, r := range l {
					if !r.Attack {
						legitimate++
						if r.Answer.Status == 429 {
							lost++
						}
					}
				}
				if score.LegitimateRefused != lost || score.LegitimateRequests != legitimate {
					t.Errorf("legitimate clients lost %d of %d requests, the score says %d of %d", lost, legitimate, score.LegitimateRefused, score.LegitimateRequests)
				}
				if len(score.Faults) > 0 || score.InnocentRefused > 0 || score.BystandersRefused == 0 {
					t.Errorf("refused: %d requests of innocents, %d of bystanders; faults:\n%s", score.InnocentRefused, score.BystandersRefused, describe(score))
				}
			})
		}
	}
}

// The judge names the mistakes of a PoP that sheds.
func TestSheddingMistakes(t *testing.T) {
	for _, test := range []struct {
		name, rules string
		*shedder
		want string
	}{
		{"below the threshold, by three rules", levels, &shedder{part: map[string]float64{"block": 0.2}}, "sheds_below_threshold"},
		{"refusals of narrower rules count for wider ones", levels, &shedder{wider: true}, "counts_for_wider_networks"},
		{"never", levels, &shedder{never: "block"}, "sheds_too_little"},
		{"never the wider networks", narrow, &shedder{never: "wide"}, "sheds_too_little"},
		{"not at one node", block, &shedder{deaf: true}, "sheds_too_little"},
		{"never, despite enough clients", many, &shedder{never: "block"}, "sheds_too_little"},
		{"too few clients", levels, &shedder{part: map[string]float64{"block": 1.5}}, "sheds_too_little"},
		{"despite too few clients", many, &shedder{ignoresMinClients: true}, "sheds_below_threshold"},
		{"some requests of each client", block, &shedder{epoch: 1}, "sheds_by_request"},
		{"some requests of each client, by three rules", levels, &shedder{epoch: 1}, "sheds_by_request"},
		{"other clients every ten seconds", block, &shedder{epoch: 10_000_000}, "sheds_by_request"},
		{"all clients", levels, &shedder{whole: true}, "sheds_too_much"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := test.score(t, test.rules, spread(1, false))
			if got := names(s); !slices.Equal(got, []string{test.want}) {
				t.Errorf("faults %v, want %s\n%s", got, test.want, describe(s))
			}
		})
	}
}
