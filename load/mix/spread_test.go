package mix_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/load/mix"
)

// byComponent returns the requests of each client of a component.
func byComponent(m *mix.Mix, name string) map[netip.Addr][]mix.Request {
	list := map[netip.Addr][]mix.Request{}
	for _, r := range requests(m) {
		if m.Components()[r.Component].Name == name {
			list[m.Addr(r.Client)] = append(list[m.Addr(r.Client)], r)
		}
	}
	return list
}

// networksOf returns the number of addresses in each network.
func networksOf[T any](clients map[netip.Addr]T, prefix int) map[netip.Prefix]int {
	n := map[netip.Prefix]int{}
	for a := range clients {
		n[netip.PrefixFrom(a, prefix).Masked()]++
	}
	return n
}

// in returns the number of networks of one list that are in another one.
func in(list, other map[netip.Prefix]int) (n int) {
	for p := range list {
		if other[p] > 0 {
			n++
		}
	}
	return n
}

func TestSpread(t *testing.T) {
	m := load(t, "testdata/spread.yaml")
	visitors := map[netip.Addr]bool{}
	for client := range m.Components()[0].Clients {
		visitors[m.Addr(client)] = true
	}
	for _, test := range []struct {
		name                                               string
		addresses, networks, prefix, shared, requests, per int
	}{
		{"bots", 3000, 40, 24, 10, 2, 75},
		{"carrier", 30, 30, 32, 30, 30, 1},
		{"six", 200, 10, 56, 5, 3, 20},
		{"holidays", 100, 9, 20, 0, 1, 11},
	} {
		clients := byComponent(m, test.name)
		networks := networksOf(clients, test.prefix)
		if len(clients) != test.addresses || len(networks) != test.networks {
			t.Errorf("%s: %d addresses in %d networks, want %d in %d", test.name, len(clients), len(networks), test.addresses, test.networks)
		}
		if shared := in(networks, networksOf(visitors, test.prefix)); shared != test.shared {
			t.Errorf("%s: %d networks have visitors, want %d", test.name, shared, test.shared)
		}
		for a, list := range clients {
			if len(list) != test.requests {
				t.Errorf("%s: %v sends %d requests, want %d", test.name, a, len(list), test.requests)
			}
			if visitors[a] != (test.prefix == 32) {
				t.Errorf("%s: %v is the address of a visitor: %t", test.name, a, visitors[a])
			}
		}
		for p, n := range networks {
			if n != test.per && n != test.per+1 {
				t.Errorf("%s: %d addresses are in %v, want %d", test.name, n, p, test.per)
			}
		}
	}
	var first, last time.Duration
	for _, list := range byComponent(m, "bots") {
		for _, r := range list {
			at := time.Duration(r.Time-start) * time.Microsecond
			first, last = min(first, at), max(last, at)
			if first == 0 {
				first = at
			}
		}
	}
	between(t, "first request of bots, in seconds", first.Seconds(), 60, 61)
	between(t, "6000 requests at 50/s, in seconds", (last - first).Seconds(), 115, 125)
}

// A mix overlaid on a log shares networks with the clients of the log.
func TestOver(t *testing.T) {
	const text = "duration: 1h\ncomponents:\n- name: visitors\n  steady: {clients: 100, rate: 1/s}\n  addresses: [10.0.0.0/10]\n- name: bots\n  from: 10m\n  spread: {clients: 1000, networks: 40, shared: %v, rate: 100/s}\n"
	var p mix.Population
	clients := map[netip.Addr]bool{netip.MustParseAddr("2001:db8::1"): true}
	list := []netip.Addr{netip.MustParseAddr("2001:db8::1")}
	for range 300 {
		list = append(list, p.Next())
		clients[list[len(list)-1]] = true
	}
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	seeds := map[netip.Prefix]int{}
	for seed := range uint64(2) {
		for share, want := range map[float64]int{0: 0, 0.25: 10, 0.5: 20, 1: 40} {
			m := parse(t, fmt.Sprintf(text, share))
			m.Seed = seed
			over, err := m.Over(began, list)
			if err != nil {
				t.Fatal(err)
			}
			bots := byComponent(over, "bots")
			networks := networksOf(bots, 24)
			if len(requests(over)) != 1000 || len(bots) != 1000 || len(networks) != 40 || in(networks, networksOf(clients, 24)) != want {
				t.Errorf("share %v: %d requests from %d addresses in %d networks, %d of them shared, want %d", share, len(requests(over)), len(bots), len(networks), in(networks, networksOf(clients, 24)), want)
			}
			for a, list := range bots {
				if clients[a] || a.IsPrivate() || !a.IsGlobalUnicast() {
					t.Errorf("%v is the address of a client of the log, or not public", a)
				}
				if at := time.UnixMicro(list[0].Time).Sub(began); at < 10*time.Minute || at > 11*time.Minute {
					t.Errorf("%v begins after %v, want just over 10 minutes", a, at)
				}
			}
			if share == 0 && seed == 0 {
				seeds = networks
			} else if share == 0 && in(seeds, networks) == len(networks) {
				t.Error("another seed draws the same networks")
			}
			again, err := m.Over(began, list)
			if err != nil {
				t.Fatal(err)
			}
			if in(networksOf(byComponent(again, "bots"), 24), networks) != 40 {
				t.Error("the same seed draws other networks")
			}
		}
	}
	for _, test := range []struct {
		name, text, want string
		clients          []netip.Addr
	}{
		{"few clients", fmt.Sprintf(text, 1), "mix: bots: cannot share 40 networks of length 24: legitimate clients are in only 2", list[:3]},
		{"no attack", "duration: 1h\ncomponents: [{name: a, steady: {clients: 1, rate: 1/s}}]\n", "mix: no component is an attack", list},
	} {
		if _, err := parse(t, test.text).Over(began, test.clients); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

// Most clients are alone in their network, and some networks have very many.
func TestPopulation(t *testing.T) {
	var p, again mix.Population
	clients := map[netip.Addr]bool{}
	for n := range 10_000 {
		a := p.Next()
		if b := again.Next(); a != b {
			t.Fatalf("client %d: addresses %v and %v", n, a, b)
		}
		if clients[a] || a.IsPrivate() || !a.IsGlobalUnicast() {
			t.Fatalf("client %d: address %v is taken or not public", n, a)
		}
		clients[a] = true
	}
	for prefix, low := range map[int]int{24: 6000, 16: 4000} {
		networks, most := networksOf(clients, prefix), 0
		for _, n := range networks {
			most = max(most, n)
		}
		between(t, fmt.Sprintf("networks of length %d", prefix), float64(len(networks)), float64(low), 9500)
		between(t, fmt.Sprintf("clients of the largest network of length %d", prefix), float64(most), 20, 2500)
	}
	if got, want := p.Next().String(), "80.234.238.193"; got != want {
		t.Errorf("client 10,000 is %s, want %s: earlier results would not be reproducible", got, want)
	}
	for range 100_000 { // until networks are full
		a := again.Next()
		if clients[a] {
			t.Fatalf("the address %v is taken", a)
		}
		clients[a] = true
	}
	most := 0
	for _, n := range networksOf(clients, 24) {
		most = max(most, n)
	}
	between(t, "clients of a full network", float64(most), 254, 254)
}
