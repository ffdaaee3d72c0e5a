package analysis

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A shedOracle passes or refuses requests by networks according to docs/rules.md, slowly: it keeps all requests. It
// shares only the hash with the code that it checks.
type shedOracle struct {
	rules []networkRule
	exact bool // counts the requests of the trailing period instead of estimating by two windows
	seen  map[string][]seenRequest
	until map[string]int64 // ends of mitigations
}

// A networkRule is a rule that counts by network, or by client if it has 32 bits.
type networkRule struct {
	id         string
	bits       int // prefix length for IPv4; twice as long for IPv6
	limits     [][2]int64
	timeout    int64
	cost       int64
	minClients int
	shed       bool
}

// A seenRequest is a request of a client that was counted under a key, at a time in microseconds.
type seenRequest struct {
	at     int64
	client netip.Addr
}

// part returns the first bits of an address, twice as many for IPv6.
func part(addr netip.Addr, bits int) netip.Addr {
	raw, from := addr.AsSlice(), bits
	if addr.Is6() {
		from = 2 * bits
	}
	for i := from; i < 8*len(raw); i++ {
		raw[i/8] &^= 0x80 >> (i % 8)
	}
	masked, _ := netip.AddrFromSlice(raw)
	return masked
}

func (r *networkRule) key(addr netip.Addr) string { return r.id + " " + part(addr, r.bits).String() }

// share returns the position of a client in the order in which a key's clients are refused, out of 1<<32. The
// key consists of version 1, the rule's ID, and the kind (9), name, presence and value of its characteristic.
func (r *networkRule) share(addr, client netip.Addr, now int64) int64 {
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	material := text([]byte{1}, r.id)
	material = text(append(material, 9), r.name())
	material = text(append(material, 0, 0, 0, 1), string(part(addr, r.bits).AsSlice()))
	key := secret.Tag(material)
	id := client.As16()
	epoch := (now/1e6 + int64(binary.BigEndian.Uint16(key[:]))%600) / 600
	sum := secret.Tag(binary.BigEndian.AppendUint64(append(append(key[:], 's'), id[:]...), uint64(epoch)))
	return int64(binary.BigEndian.Uint32(sum[:]))
}

func (r *networkRule) name() string { return fmt.Sprintf("%d/%d", r.bits, 2*r.bits) }

// over reports whether the estimate of a key in a period is greater than n, in whole requests.
func (o *shedOracle) over(r *networkRule, key string, period, now int64, n *big.Int) bool {
	sum := int64(0) // weighted by microseconds
	for _, s := range o.seen[key] {
		switch {
		case o.exact && s.at > now-period, !o.exact && s.at/period == now/period:
			sum += r.cost * period
		case !o.exact && s.at/period == now/period-1:
			sum += r.cost * (period - now%period)
		}
	}
	return big.NewInt(sum).Cmp(new(big.Int).Mul(n, big.NewInt(period))) > 0
}

// exceeds reports whether a limit is exceeded, and when all limits are back at the threshold without further
// requests. By exact counts a rule that sheds is back a period later, because it lets requests below the
// threshold pass anyway.
func (o *shedOracle) exceeds(r *networkRule, key string, now int64) (exceeds bool, back int64) {
	for _, l := range r.limits {
		threshold := big.NewInt(l[0])
		if !o.over(r, key, l[1], now, threshold) {
			continue
		}
		left := int64(sort.Search(int(2*l[1]), func(later int) bool { return !o.over(r, key, l[1], now+int64(later), threshold) }))
		if o.exact && r.shed {
			left = l[1]
		}
		exceeds, back = true, max(back, now+left)
	}
	return exceeds, back
}

// enough reports whether enough clients of a key were seen in this window of the first limit and the previous
// one. A node has a bit for each of 128 hashes.
func (o *shedOracle) enough(r *networkRule, key string, now int64) bool {
	bits := map[byte]bool{}
	for _, s := range o.seen[key] {
		if period := r.limits[0][1]; s.at/period >= now/period-1 {
			id := s.client.As16()
			bits[secret.Tag(id[:])[0]%128] = true
		}
	}
	return len(bits) >= r.minClients
}

// decide returns the rules that refuse a request, the narrowest first, and counts the request.
func (o *shedOracle) decide(addr netip.Addr, now int64) (by []*networkRule) {
	client := part(addr, 32)
	for i := range o.rules {
		r := &o.rules[i]
		key := r.key(addr)
		if o.until[key] <= now {
			continue
		}
		refuses := !r.shed
		for _, l := range r.limits {
			own := new(big.Int).Lsh(big.NewInt(l[0]), 32) // the client's threshold is T/(1−share)
			own.Quo(own, big.NewInt(1<<32-r.share(addr, client, now)))
			refuses = refuses || o.over(r, key, l[1], now, own)
		}
		if refuses {
			by = append(by, r)
		}
	}
	slices.SortStableFunc(by, func(a, b *networkRule) int { return cmp.Compare(b.bits, a.bits) })
	for i := range o.rules {
		if r := &o.rules[i]; len(by) == 0 || r.shed && r.bits >= by[0].bits {
			o.count(r, r.key(addr), client, now)
		}
	}
	return by
}

// count counts a request, which may start a mitigation. It extends an active one only by at least 100 ms and
// half of the remaining time.
func (o *shedOracle) count(r *networkRule, key string, client netip.Addr, now int64) {
	o.seen[key] = append(o.seen[key], seenRequest{now, client})
	exceeds, back := o.exceeds(r, key, now)
	switch until := o.until[key]; {
	case !exceeds || !o.enough(r, key, now):
	case until <= now:
		o.until[key] = max(back, now+r.timeout)
	case back-until >= 100_000 && 2*(back-until) >= until-now:
		o.until[key] = back
	}
}

// A replay refuses exactly the clients that the specification says, by exact counts and by the estimate of a single
// node that knows everything immediately.
func TestShedClients(t *testing.T) {
	shed, passed, epochs := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var rules []networkRule
		var lines []string
		for i, bits := range rapid.Permutation([]int{32, 24, 20, 16, 9}).Draw(t, "networks")[:rapid.IntRange(1, 4).Draw(t, "rules")] {
			r := networkRule{id: fmt.Sprint("r", i), bits: bits, cost: 1, minClients: 1, shed: bits < 32 && rapid.IntRange(0, 4).Draw(t, "shed") > 0}
			characteristic, more := "network:"+r.name(), ", action: block"
			if bits == 32 {
				characteristic = "ip"
			} else {
				r.minClients = rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "clients")
				more = fmt.Sprintf(", min_clients: %d, action: block", r.minClients)
			}
			if r.shed {
				more = strings.Replace(more, "block", "shed", 1)
			}
			r.cost = rapid.SampledFrom([]int64{1, 1, 1, 3}).Draw(t, "cost")
			r.timeout = rapid.SampledFrom([]int64{0, 3e6, 1800e6}).Draw(t, "timeout")
			var limits []string
			for _, period := range rapid.Permutation([]int64{2, 10, 3600}).Draw(t, "periods")[:rapid.IntRange(1, 2).Draw(t, "limits")] {
				threshold := rapid.Int64Range(1, 14).Draw(t, "threshold")
				r.limits = append(r.limits, [2]int64{threshold, period * 1e6})
				limits = append(limits, fmt.Sprintf("{threshold: %d, period: %ds}", threshold, period))
			}
			rules = append(rules, r)
			lines = append(lines, fmt.Sprintf("- {id: %s, characteristics: ['%s'], limits: [%s], mitigation_timeout: %ds, count: {cost: %d}%s}\n",
				r.id, characteristic, strings.Join(limits, ", "), r.timeout/1e6, r.cost, more))
		}
		set, err := rulefile.Parse("rules.yaml", []byte("rules:\n"+strings.Join(lines, "")))
		if err != nil {
			t.Fatal(err)
		}
		decide := instantly(set)
		var oracles [byAllSent]*shedOracle
		for way := range oracles {
			oracles[way] = &shedOracle{rules: rules, exact: way == byExactCounts, seen: map[string][]seenRequest{}, until: map[string]int64{}}
		}
		now := int64(1e15)
		pauses := rapid.SampledFrom([]*rapid.Generator[int64]{
			rapid.Int64Range(0, 300e3), rapid.SampledFrom([]int64{0, 0, 0, 1, 100e3, 1e6, 5e6, 130e6}), rapid.SampledFrom([]int64{0, 0, 0, 0, 1e6, 130e6}),
		}).Draw(t, "pauses")
		for i := range rapid.IntRange(1, 120).Draw(t, "requests") {
			pause := pauses.Draw(t, "pause")
			if now += pause; pause > 100e6 {
				epochs++
			}
			addr := netip.AddrFrom4([4]byte{10, 0, rapid.ByteRange(0, 1).Draw(t, "network") * 8, rapid.ByteRange(0, 20).Draw(t, "client")})
			if rapid.IntRange(0, 5).Draw(t, "version") == 0 {
				addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: rapid.ByteRange(0, 7).Draw(t, "client"), 15: rapid.ByteRange(0, 2).Draw(t, "host")})
			}
			got := decide(&accesslog.Entry{Time: now, Client: addr.String(), Addr: addr, Method: "GET", Path: "/", Status: 200})
			for way, o := range oracles {
				by := o.decide(addr, now)
				want := "passes"
				switch {
				case slices.ContainsFunc(by, func(r *networkRule) bool { return !r.shed }):
					want = "block"
				case len(by) > 0:
					want = "shed"
					shed++
				default:
					passed++
				}
				verdict := "passes"
				if got[way].level() == refused {
					verdict = got[way].rule.Action.String()
				}
				if verdict != want {
					t.Fatalf("request %d, of %v at %d, exact=%t: %s, want %s\n%s", i+1, addr, now, o.exact, verdict, want, strings.Join(lines, ""))
				}
			}
		}
	})
	if shed == 0 || passed == 0 || epochs == 0 {
		t.Errorf("%d requests were shed, %d passed, and %d pauses were long", shed, passed, epochs)
	}
}
