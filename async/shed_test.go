package async_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A stepped is a limiter with its own clock, which counts immediately.
type stepped struct {
	*limit.Limiter
	table *mitigation.Table
	shard *tallied
	now   time.Time
}

// A tallied shard counts its increments.
type tallied struct {
	async.Shard
	increments int
}

func (s *tallied) Exchange(b *counter.Batch) error {
	s.increments += len(b.Increments)
	return s.Shard.Exchange(b)
}

func newStepped(t testing.TB, rules string) *stepped { return newSteppedPop(t, rules, 1)[0] }

// newSteppedPop returns nodes with one shard.
func newSteppedPop(t testing.TB, rules string, nodes int) (pop []*stepped) {
	t.Helper()
	var running sync.WaitGroup
	p := &testPop{shards: []*testShard{new(testShard)}, timeout: time.Minute}
	p.shards[0].start(&running)
	t.Cleanup(func() { p.shards[0].kill(); running.Wait() })
	for range nodes {
		s := &stepped{shard: &tallied{Shard: p.clients(0)[0]}, now: time.Unix(6000, 0)}
		var err error
		s.table = mitigation.New(mitigation.Options{})
		s.Limiter, err = limit.New(limit.Options{
			Rules: parse(t, rules), Table: s.table, Shards: []async.Shard{s.shard}, Now: func() time.Time { return s.now },
			Nodes: func() int { return nodes }, Logger: slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		pop = append(pop, s)
	}
	return pop
}

// ask returns the verdict on a request of an address.
func (s *stepped) ask(addr netip.Addr) limit.Verdict {
	req := rule.Request{Addr: addr, Method: "GET", Path: "/"}
	return s.Decide(&req, s.now).Verdict
}

// wait advances the time, and counts the requests that wait.
func (s *stepped) wait(d time.Duration) {
	s.now = s.now.Add(d)
	s.Flush()
	s.Step()
}

// addrOf returns the ith address of 10.0.0.0/8.
func addrOf(i int) netip.Addr {
	b := binary.BigEndian.AppendUint32(nil, uint32(i))
	return netip.AddrFrom4([4]byte{10, b[1], b[2], b[3]})
}

// offer sends requests of new addresses at a rate for a duration, and returns how many pass.
func (s *stepped) offer(next *int, perSecond int, d time.Duration) (passed int) {
	const step = 10 * time.Millisecond
	sent := 0
	for at := step; at <= d; at += step {
		for ; sent < int(int64(perSecond)*int64(at)/int64(time.Second)); sent++ {
			*next++
			if s.ask(addrOf(*next)) == limit.Passed {
				passed++
			}
		}
		s.wait(step)
	}
	return passed
}

// While a network sheds, about its threshold passes, whether the rate rises or falls, without oscillating. When the
// rate is back below the threshold, all requests pass.
func TestSheddingConverges(t *testing.T) {
	s := newStepped(t, "rules: [{id: a, characteristics: [network:8/16], limits: [{threshold: 500, period: 10s}], action: shed}]")
	next := 0
	if passed := s.offer(&next, 45, 30*time.Second); passed != 45*30 {
		t.Errorf("at 0.9 times the threshold, %d of %d pass", passed, 45*30)
	}
	for _, times := range []int{2, 20, 5, 2} {
		s.offer(&next, 50*times, 20*time.Second)
		all := 0
		for range 4 {
			passed := s.offer(&next, 50*times, 10*time.Second)
			if all += passed; passed < 425 || passed > 575 {
				t.Errorf("at %d times the threshold of 500 in 10 s, %d pass in 10 s", times, passed)
			}
		}
		if all < 1900 || all > 2100 {
			t.Errorf("at %d times the threshold of 2000 in 40 s, %d pass, want within 5%%", times, all)
		}
	}
	s.offer(&next, 45, 20*time.Second)
	if passed := s.offer(&next, 45, 30*time.Second); passed != 45*30 {
		t.Errorf("after the attack, %d of %d pass", passed, 45*30)
	}
}

// About the threshold also passes if the requests of a network go to several nodes, each of which rarely learns what
// the others count.
func TestSheddingAtSeveralNodes(t *testing.T) {
	const nodes, threshold, perSecond, seconds = 3, 10, 25, 200
	pop := newSteppedPop(t, "rules: [{id: a, characteristics: [network:8/16], limits: [{threshold: 10, period: 1s}], action: shed}]", nodes)
	random := rand.New(rand.NewPCG(1, 2))
	passed := 0
	for i := range perSecond * seconds {
		if pop[random.IntN(nodes)].ask(addrOf(i)) == limit.Passed && i >= 2*perSecond {
			passed++
		}
		for _, s := range pop {
			s.wait(time.Second / perSecond)
		}
	}
	if want := threshold * (seconds - 2); math.Abs(float64(passed)/float64(want)-1) > 0.05 {
		t.Errorf("%d requests pass in %d s, want %d within 5%%", passed, seconds-2, want)
	}
}

// As the estimate rises, more clients are refused, and clients that were refused stay refused. After an epoch
// the selection changes.
func TestSheddingAddsClients(t *testing.T) {
	s := newStepped(t, "rules: [{id: a, characteristics: [network:8/16], limits: [{threshold: 100, period: 1h}], action: shed}]")
	refused := func(from int) (list []int) {
		for i := range 1000 {
			req := rule.Request{Addr: addrOf(from + i)}
			if s.Look(&req, s.now).Verdict == limit.Shed {
				list = append(list, i)
			}
		}
		return list
	}
	next := 1 << 20
	var before []int
	for want := 100; want <= 6400; want *= 2 {
		for ; next < 1<<20+want; next++ {
			s.ask(addrOf(next))
		}
		s.wait(0)
		now := refused(0)
		for _, i := range before {
			if !slices.Contains(now, i) {
				t.Fatalf("client %d was refused at an estimate of %d, and passes at %d", i, want/2, want)
			}
		}
		if part := 1000 - 1000*100/want; len(now) < part-50 || len(now) > part+50 {
			t.Errorf("at %d times the threshold, %d of 1000 clients are refused, want about %d", want/100, len(now), part)
		}
		before = now
	}
	s.wait(time.Minute)
	if now := refused(0); !slices.Equal(now, before) {
		t.Error("a minute later, other clients are refused")
	}
	s.wait(10 * time.Minute)
	both := 0
	for _, i := range refused(0) {
		if slices.Contains(before, i) {
			both++
		}
	}
	if both == len(before) {
		t.Error("eleven minutes later, the same clients are refused")
	}
}

// An oracle counts the requests of nested networks, slowly, from what docs/rules.md says. Mitigations
// outlast the test.
type oracle struct {
	levels []level // narrowest first
	counts map[string]map[int64]int64
	active map[string]bool
}

type level struct {
	bits      int
	threshold int64
	shed      bool
}

const oraclePeriod = 10_000_000 // microseconds

// exceeds reports whether a key's estimate is greater than what, at a time in microseconds.
func (o *oracle) exceeds(key string, at int64, what *big.Int) bool {
	window, elapsed := at/oraclePeriod, at%oraclePeriod
	estimate := o.counts[key][window-1]*(oraclePeriod-elapsed) + o.counts[key][window]*oraclePeriod
	return big.NewInt(estimate).Cmp(new(big.Int).Mul(what, big.NewInt(oraclePeriod))) > 0
}

// decide returns the verdict on a request, and counts it. share returns the hash of the client at a level, from 0 to 1.
func (o *oracle) decide(addr netip.Addr, at int64, share func(level int) async.Share) limit.Verdict {
	verdict, narrowest := limit.Passed, len(o.levels)
	key := func(i int) string {
		prefix, _ := addr.Prefix(o.levels[i].bits)
		return fmt.Sprint(i, prefix)
	}
	for i, l := range o.levels {
		if !o.active[key(i)] {
			continue
		}
		// The client is refused above threshold/(1−share), in whole requests.
		above := new(big.Int).Div(new(big.Int).Lsh(big.NewInt(l.threshold), 32), big.NewInt(1<<32-int64(share(i))))
		switch {
		case !l.shed:
			verdict, narrowest = limit.Blocked, min(narrowest, i)
		case o.exceeds(key(i), at, above):
			verdict, narrowest = max(verdict, limit.Shed), min(narrowest, i)
		}
	}
	for i, l := range o.levels {
		if k := key(i); verdict == limit.Passed || l.shed && i <= narrowest {
			if o.counts[k] == nil {
				o.counts[k] = map[int64]int64{}
			}
			o.counts[k][at/oraclePeriod]++
			if o.exceeds(k, at, big.NewInt(l.threshold)) {
				o.active[k] = true
			}
		}
	}
	return verdict
}

// On random trees of networks the limiter agrees with the oracle: the narrowest network that exceeds its threshold
// refuses, and requests that it refuses do not count for wider networks.
func TestNarrowestNetwork(t *testing.T) {
	check(t, func(rt *rapid.T) {
		o := &oracle{counts: map[string]map[int64]int64{}, active: map[string]bool{}}
		var lines []string
		for bits := 32; bits > 0 && len(o.levels) < 4; bits = rapid.IntRange(1, max(1, bits-1)).Draw(rt, "bits") {
			l := level{bits, rapid.Int64Range(1, 20).Draw(rt, "threshold"), bits < 32 && rapid.IntRange(0, 3).Draw(rt, "shed") > 0}
			if len(o.levels) > 0 && o.levels[len(o.levels)-1].bits == bits {
				break
			}
			characteristic, action := fmt.Sprintf("network:%d/48", bits), "block"
			if bits == 32 {
				characteristic = "ip"
			}
			if l.shed {
				action = "shed"
			}
			lines = append(lines, fmt.Sprintf("- {id: l%d, characteristics: [%s], limits: [{threshold: %d, period: 10s}], mitigation_timeout: 1h, action: %s}\n",
				len(o.levels), characteristic, l.threshold, action))
			o.levels = append(o.levels, l)
		}
		rules := "rules:\n" + strings.Join(rapid.Permutation(lines).Draw(rt, "order"), "")
		s := newStepped(t, rules)
		for i := range rapid.IntRange(20, 200).Draw(rt, "requests") {
			s.wait(time.Duration(rapid.IntRange(0, 500).Draw(rt, "pause")) * time.Millisecond)
			raw := rapid.SliceOfN(rapid.ByteRange(0, 1), 4, 4).Draw(rt, "address")
			addr := netip.AddrFrom4([4]byte(raw))
			want := o.decide(addr, s.now.UnixMicro(), func(i int) async.Share {
				req := rule.Request{Addr: addr}
				req.Canonicalize(rule.ClientPrefix{})
				material, _ := s.Rules().Rule(fmt.Sprint("l", i)).AppendKey(nil, &req)
				return async.ShareOf(counter.Secret{}, counter.Secret{}.Tag(material), addr, s.now)
			})
			if got := s.ask(addr); got != want {
				rt.Fatalf("request %d, of %v, is %v, want %v; rules:\n%s", i+1, addr, got, want, rules)
			}
		}
	})
}

// An abusive address is blocked while its neighbors pass, although the network received more requests than its
// threshold.
func TestAbusiveAddress(t *testing.T) {
	s := newStepped(t, `rules:
- {id: client, characteristics: [ip], limits: [{threshold: 20, period: 1m}]}
- {id: block, characteristics: [network:24/48], limits: [{threshold: 50, period: 1m}], action: shed}
`)
	loud, quiet := addrOf(1), addrOf(2)
	for range 1000 {
		s.ask(loud)
		s.wait(10 * time.Millisecond)
	}
	for range 20 {
		if v := s.ask(quiet); v != limit.Passed {
			t.Fatalf("a request of a neighbor is %v", v)
		}
		s.wait(10 * time.Millisecond)
	}
}

// A network is mitigated only after min_clients of its clients were seen in the current and the previous window.
func TestMinClients(t *testing.T) {
	for _, action := range []string{"block", "shed"} {
		s := newStepped(t, "rules: [{id: a, characteristics: [network:24/48], limits: [{threshold: 10, period: 10s}], min_clients: 5, action: "+action+"}]")
		record := func() bool {
			for r := range s.table.All(s.now) {
				return !r.Lifted
			}
			return false
		}
		send := func(from, clients, each int) {
			for range each {
				for i := range clients {
					s.ask(addrOf(from + i))
				}
				s.wait(10 * time.Millisecond)
			}
		}
		if send(0, 4, 100); record() {
			t.Errorf("%s: a network with 4 clients is mitigated", action)
		}
		s.wait(30 * time.Second)
		if send(4, 4, 100); record() {
			t.Errorf("%s: a network with 4 other clients, two windows later, is mitigated", action)
		}
		if send(8, 8, 1); !record() {
			t.Errorf("%s: a network with 12 clients is not mitigated", action)
		}
	}
}

// A lift takes effect immediately, and requests from before it do not count again.
func TestLiftOfNetwork(t *testing.T) {
	s := newStepped(t, "rules: [{id: a, characteristics: [network:8/16], limits: [{threshold: 10, period: 1h}], mitigation_timeout: 1h, action: shed}]")
	next := 0
	s.offer(&next, 100, 10*time.Second)
	var record mitigation.Record
	for r := range s.table.All(s.now) {
		record = *r
	}
	if _, err := s.Lift(record.Key, s.now); err != nil {
		t.Fatal(err)
	}
	s.wait(0)
	for i := range 10 {
		if v := s.ask(addrOf(1 + i)); v != limit.Passed {
			t.Errorf("request %d after the lift is %v", i+1, v)
		}
		s.wait(0)
	}
	if passed := s.offer(&next, 100, 10*time.Second); passed > 100 {
		t.Errorf("of 1000 further requests, %d pass: the network was not mitigated again", passed)
	}
}

// Three levels of networks add at most 50% to the increments, below their thresholds and under attack.
func TestIncrementsOfNetworks(t *testing.T) {
	send := func(rules string) (increments, passed int) {
		s := newStepped(t, rules)
		for i := range 1000 { // 5,000 requests per second of new addresses in 100 networks, for 2 s
			for j := range 10 {
				n := 10*i + j
				if s.ask(netip.AddrFrom4([4]byte{10, byte(n % 100 / 10), byte(n % 100 % 10), byte(n / 100)})) == limit.Passed {
					passed++
				}
			}
			s.wait(2 * time.Millisecond)
		}
		return s.shard.increments, passed
	}
	const byClient = "rules:\n- {id: client, characteristics: [ip], limits: [{threshold: 20, period: 10s}]}\n"
	alone, passed := send(byClient)
	if passed != 10_000 {
		t.Fatalf("by client alone, %d of 10,000 pass", passed)
	}
	for name, thresholds := range map[string][3]int{"peace": {1000, 10_000, 100_000}, "attack": {50, 10_000, 100_000}} {
		rules := byClient
		for i, networks := range []string{"24/48", "16/32", "8/16"} {
			rules += fmt.Sprintf("- {id: l%d, characteristics: [network:%s], limits: [{threshold: %d, period: 10s}], min_clients: 10, action: shed}\n", i, networks, thresholds[i])
		}
		more, passed := send(rules)
		t.Logf("%s: %d increments, %d by client alone; %d requests pass", name, more, alone, passed)
		if 2*more > 3*alone {
			t.Errorf("%s: %d increments, %d by client alone: more than 1.5 times as many", name, more, alone)
		}
		if (passed == 10_000) != (name == "peace") {
			t.Errorf("%s: %d of 10,000 pass", name, passed)
		}
	}
}

// BenchmarkNetworks measures what levels of networks add to a decision (Look), and to a decision with its count
// (Decide), of requests that pass, and what a mitigated network that sheds costs.
func BenchmarkNetworks(b *testing.B) {
	levels := []string{"24/48", "16/32", "8/16"}
	for _, n := range []int{0, 1, 3} {
		rules := "rules:\n- {id: client, characteristics: [ip], limits: [{threshold: 1000000, period: 1m}]}\n"
		for i, networks := range levels[:n] {
			rules += fmt.Sprintf("- {id: l%d, characteristics: [network:%s], limits: [{threshold: 1000000000, period: 1m}], min_clients: 10, action: shed}\n", i, networks)
		}
		for name, decides := range map[string]bool{"Look": false, "Decide": true} {
			b.Run(fmt.Sprintf("%s/levels=%d", name, n), func(b *testing.B) {
				l, _, _ := newLimiter(b, rules)
				runLimiter(b, l)
				now := time.Now()
				b.ReportAllocs()
				for i := range b.N {
					req := request(uint32(i) % 10_000)
					d := limit.Decision{}
					if decides {
						d = l.Decide(&req, now)
					} else {
						d = l.Look(&req, now)
					}
					if d.Verdict != limit.Passed {
						b.Fatal(d.Verdict)
					}
				}
			})
		}
	}
	b.Run("Look/shed", func(b *testing.B) {
		s := newStepped(b, "rules: [{id: a, characteristics: [network:8/16], limits: [{threshold: 100, period: 1h}], action: shed}]")
		next := 0
		s.offer(&next, 100, 2*time.Second)
		b.ReportAllocs()
		for i := range b.N {
			req := rule.Request{Addr: addrOf(i % 1000)}
			s.Look(&req, s.now)
		}
	})
}
