package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/bench/harness"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// An attack sends requests of addresses that are never used again, from many networks, to all nodes of a PoP.
const (
	attackRate      = 5000 // requests per second
	attackNetworks  = 200  // IPv4 /16, so that there are enough addresses
	attackThreshold = 10   // requests of a network per second
	visitors        = 100  // people who send a request per second each, half of them in networks of the attack
	senders         = 12
)

const perNetwork = `{id: client, characteristics: [ip], limits: [{threshold: 20, period: 10s}]},
{id: block, characteristics: [network:16/32], limits: [{threshold: 10, period: 1s}], min_clients: 3, action: shed}`

// attacker returns the nth address of the attack.
func attacker(n int) netip.Addr {
	of := n / attackNetworks
	return netip.AddrFrom4([4]byte{byte(11 + n%attackNetworks), 20, byte(of >> 8), byte(of)})
}

// visitor returns the address of one of the people.
func visitor(n int) netip.Addr {
	if n%2 == 0 {
		return netip.AddrFrom4([4]byte{byte(11 + n), 20, 255, 1})
	}
	return netip.AddrFrom4([4]byte{byte(11 + n), 30, 0, 1})
}

// networks shows when all nodes act on the networks of an attack, and how much of it passes then.
func networks() {
	var r attackRun
	show := func(name, binary, cores string, delay time.Duration) {
		if strings.Contains(name, *only) {
			r.measure(binary, cores, delay)
			fmt.Printf("| %s | %s |\n", name, r.String())
		}
	}
	fmt.Printf("\nAn attack of %d/s of new addresses in %d networks, threshold %d/s of a network, three nodes, for %v:\n\n", attackRate, attackNetworks, attackThreshold, *last)
	fmt.Println("| | networks mitigated | all nodes act after: median | 99% | passes/s of the attack after a second | of the thresholds | people refused: in networks of the attack | in others | cores busy |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	for range *runs {
		for name, situation := range map[string]struct {
			cores string
			delay time.Duration
		}{"two cores": {"0,1", 0}, "one core": {"0", 0}, "two cores, memcached answers 40ms late": {"0,1", 40 * time.Millisecond}} {
			show(name, *edge, situation.cores, situation.delay)
			if *against != "" {
				show("before: "+name, *against, situation.cores, situation.delay)
			}
		}
	}
}

// An attackRun is one run.
type attackRun struct {
	acts                   []time.Duration // from exceeding a network's limit until the last node acts
	mitigated              int
	passed                 float64 // requests per second
	sharedAsked, shared    int     // requests of people in networks of the attack, all and refused
	unsharedAsked, unshare int
	busy                   float64
}

func (r *attackRun) String() string {
	slices.Sort(r.acts)
	at := func(part float64) time.Duration {
		if len(r.acts) == 0 {
			return 0
		}
		return r.acts[int(part*float64(len(r.acts)-1))].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d | %v | %v | %.0f | %+.1f%% | %d of %d | %d of %d | %.0f%%", r.mitigated, at(0.5), at(0.99), r.passed,
		100*(r.passed/(attackNetworks*attackThreshold)-1), r.shared, r.sharedAsked, r.unshare, r.unsharedAsked, 100*r.busy)
}

func (r *attackRun) measure(binary, cores string, delay time.Duration) {
	*r = attackRun{}
	var mu sync.Mutex
	acted := map[string]map[int]time.Time{} // by key and node
	p := setup{binary: binary, cores: cores, rule: perNetwork, nodes: 3, delay: delay, log: func(node int, line []byte) {
		var entry struct {
			Time     time.Time
			Msg, Key string
		}
		if json.Unmarshal(line, &entry) != nil || entry.Msg != "mitigation started" && entry.Msg != "mitigation learned" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if acted[entry.Key] == nil {
			acted[entry.Key] = map[int]time.Time{}
		}
		if acted[entry.Key][node].IsZero() {
			acted[entry.Key][node] = entry.Time
		}
	}}.start(*last)
	defer p.end()
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // so that a network exceeds its limit within a window
	begin, busy := time.Now(), busyTime(cores)
	var wg sync.WaitGroup
	var next, passed atomic.Int64
	crossed := make([]time.Time, attackNetworks)
	for i := range senders {
		wg.Go(func() {
			c := dial(p.nodes[i%len(p.nodes)])
			defer c.Close()
			for {
				n := int(next.Add(1) - 1)
				due := begin.Add(time.Duration(n) * time.Second / attackRate)
				if due.Sub(begin) >= *last {
					return
				}
				time.Sleep(time.Until(due))
				if n/attackNetworks == attackThreshold {
					crossed[n%attackNetworks] = time.Now() // each element is written once
				}
				if c.ask(attacker(n)) == 200 && time.Since(begin) > 1500*time.Millisecond {
					passed.Add(1)
				}
			}
		})
	}
	c := dial(p.nodes[0])
	defer c.Close()
	for i := 0; time.Since(begin) < *last; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / visitors)))
		refused := 0
		if c.ask(visitor(i%visitors)) != 200 {
			refused = 1
		}
		if i%2 == 0 {
			r.sharedAsked, r.shared = r.sharedAsked+1, r.shared+refused
		} else {
			r.unsharedAsked, r.unshare = r.unsharedAsked+1, r.unshare+refused
		}
	}
	wg.Wait()
	took := time.Since(begin)
	r.passed = float64(passed.Load()) / (took.Seconds() - 1.5)
	r.busy = (busyTime(cores) - busy).Seconds() / took.Seconds() / float64(len(coresOf(cores)))
	mu.Lock()
	defer mu.Unlock()
	keys := networkKeys()
	for i, key := range keys {
		var latest time.Time
		for _, at := range acted[key] {
			if at.After(latest) {
				latest = at
			}
		}
		if len(acted[key]) >= len(p.nodes)-1 { // the node that started it may not have logged it
			r.mitigated++
			r.acts = append(r.acts, max(0, latest.Sub(crossed[i])))
		}
	}
}

// networkKeys returns the keys of the attack's networks, as nodes log them.
func networkKeys() (keys []string) {
	of := keysOf(perNetwork, "block")
	for i := range attackNetworks {
		keys = append(keys, of(attacker(i)).String())
	}
	return keys
}

// keysOf returns a function that returns the key of an address under one of some rules.
func keysOf(rules, id string) func(netip.Addr) counter.Key {
	set, err := rulefile.Parse("rules.yaml", []byte("rules: ["+rules+"]\n"))
	harness.Check(err)
	secret, err := counter.NewSecret(secretText)
	harness.Check(err)
	return func(addr netip.Addr) counter.Key {
		req := rule.Request{Addr: addr}
		req.Canonicalize(rule.ClientPrefix{})
		material, _ := set.Rule(id).AppendKey(nil, &req)
		return secret.Tag(material)
	}
}

// A line is a connection to a node that sends one request after another.
type line struct {
	net.Conn
	responses *bufio.Reader
}

func dial(node string) *line {
	c, err := net.Dial("tcp", node)
	harness.Check(err)
	return &line{c, bufio.NewReader(c)}
}

// ask sends a request from an address, and returns the status of the response.
func (l *line) ask(addr netip.Addr) (status int) {
	_, err := fmt.Fprintf(l, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: %v\r\n\r\n", addr)
	harness.Check(err)
	head, err := l.responses.Peek(len("HTTP/1.1 200"))
	harness.Check(err)
	status, err = strconv.Atoi(string(bytes.TrimPrefix(head, []byte("HTTP/1.1 "))))
	harness.Check(err)
	harness.Check(harness.ReadResponse(l.responses))
	return status
}
