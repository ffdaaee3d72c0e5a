package analysis

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A replayedRequest is a request of the log, with the decisions of all PoPs.
type replayedRequest struct {
	entry   accesslog.Entry
	number  uint64 // its place in the log, from 1
	now     int64  // its time, or the time of an earlier request if that is later
	addr    netip.Addr
	network netip.Addr       // the network that is the client: see rule.Request.Client
	client  accesslog.Client // network as a key
	hash    uint64           // of client
	owner   uint32           // index, in each set, of the instantPoP that handles the request
	node    uint16           // node of each Simulation
	cold    bool             // passes because no key ever exceeds a limit
	waits   int              // if cold, the number of keys under which it counts
	decided [maxDecisions]ruling
}

const maxDecisions = int(causesOfError) + 1

// A ruling is the decision of a PoP about a request.
type ruling struct {
	verdict limit.Verdict
	by      int8       // 1 + the width of the narrowest rule that refuses; 0 if no rule or an access list does
	rule    *rule.Rule // the rule that decided; nil if none did
	until   int64      // end of its mitigation of the key
}

// level returns the severity of o.
func (o ruling) level() level {
	switch {
	case o.verdict.Refused():
		return refused
	case o.verdict == limit.Logged:
		return logged
	}
	return passed
}

// A level is the severity of a decision.
type level uint8

const (
	passed  level = iota
	logged        // would be refused but for the action log
	refused       // does not reach the origin
)

// A player plays a log to PoPs, each in its own goroutine, and passes on the requests in the order of the log
// once all PoPs have made their decisions. Its goroutines run from the first full batch until finish.
type player struct {
	client   rule.ClientPrefix
	owners   uint32            // number of instantPoPs in each set, which share the requests
	byHost   bool              // owners share requests by host: no key spans two hosts
	widest   rule.ClientPrefix // otherwise by network: no key spans two networks of this length
	fields   bool              // rules read headers
	spread   spread
	players  []func(*batch)
	instants int                    // number of players that the others wait for
	done     func(*replayedRequest) // called in the order of the log

	next        *batch
	playing     []*batch // in the order of the log
	queues      []chan *batch
	n           uint64 // number of requests
	first, last int64  // times of the first and last request; 0 without requests
}

// A batch is a list of requests in the order of the log.
type batch struct {
	requests []replayedRequest
	fields   []accesslog.Field // of all of them
	instant  sync.WaitGroup    // waits for the players that share requests
	playing  sync.WaitGroup    // waits for all players
}

const (
	requestsInBatch = 1 << 9
	maxPlaying      = 24 // batches
)

// newPlayer returns a player for rules that count by these lists of characteristics. fields is set if rules
// read header fields.
func newPlayer(client rule.ClientPrefix, fields bool, lists [][]rule.Characteristic) *player {
	p := &player{client: client, fields: fields, owners: 1}
	isHost := func(c rule.Characteristic) bool { return c.Kind == rule.Host } // a request has exactly one
	widest, ok := widestNetworks(client, lists)
	p.widest = widest
	if !ok {
		p.byHost = !slices.ContainsFunc(lists,
			func(list []rule.Characteristic) bool { return !slices.ContainsFunc(list, isHost) })
	}
	if ok || p.byHost {
		p.owners = uint32(runtime.GOMAXPROCS(0))
	}
	return p
}

// widestNetworks returns prefix lengths such that each key and each client lies within one network. ok is false
// if a list counts neither by client nor by network.
func widestNetworks(client rule.ClientPrefix, lists [][]rule.Characteristic) (widest rule.ClientPrefix, ok bool) {
	client.IPv4, client.IPv6 = cmp.Or(client.IPv4, 32), cmp.Or(client.IPv6, 64)
	widest = client
	for _, list := range lists {
		var own rule.ClientPrefix
		for i := range list {
			ipv4, ipv6 := list[i].Bits()
			if list[i].Kind == rule.IP {
				ipv4, ipv6 = client.IPv4, client.IPv6
			}
			own.IPv4, own.IPv6 = max(own.IPv4, ipv4), max(own.IPv6, ipv6)
		}
		widest.IPv4, widest.IPv6 = min(widest.IPv4, own.IPv4), min(widest.IPv6, own.IPv6)
	}
	return widest, widest.IPv4 > 0
}

// newRulesPlayer returns a player for PoPs with these sets of rules.
func newRulesPlayer(client rule.ClientPrefix, sets ...*rule.Set) *player {
	fields := false
	var lists [][]rule.Characteristic
	for _, s := range sets {
		fields = fields || s.ReadsFields()
		for _, r := range s.Rules() {
			lists = append(lists, r.Characteristics)
		}
	}
	return newPlayer(client, fields, lists)
}

// instant adds PoPs that know everything immediately and share the requests of the log. They write their decisions
// starting with the ith, the exact ones first if exact is set.
func (p *player) instant(rules *rule.Set, i int, exact bool) (all []*instantPoP) {
	for range p.owners {
		x := newInstantPoP(p.client, rules, i, exact)
		all = append(all, x)
		p.share(x.decideAll)
	}
	return all
}

// share adds an owner, which plays up to decidedAtOnce of its requests at a time. Simulated PoPs must be added
// afterwards.
func (p *player) share(play func([]*replayedRequest)) {
	owner := uint32(p.instants) % p.owners
	p.instants++
	own := make([]*replayedRequest, 0, requestsInBatch)
	p.players = append(p.players, func(b *batch) {
		own = own[:0]
		for i := range b.requests {
			if r := &b.requests[i]; r.owner == owner {
				own = append(own, r)
			}
		}
		for chunk := range slices.Chunk(own, decidedAtOnce) {
			play(chunk)
		}
		b.instant.Done()
	})
}

// survey returns a player that lets PoPs, one for each owner, survey a log before they play it. The cells of all
// surveys together take at most memory bytes, unless that leaves very few.
func (p *player) survey(pops []*instantPoP, memory int) *player {
	cells := memory / int(unsafe.Sizeof(surveyCell{})) / ((1 + pops[0].limits) * len(pops))
	s := &player{client: p.client, owners: p.owners, byHost: p.byHost, widest: p.widest, fields: p.fields,
		done: func(*replayedRequest) {}}
	for _, x := range pops {
		x.surveying, x.survey = true, newSurvey(x.limits, 1<<bits.Len(uint(cells/2)))
		s.share(x.surveyAll)
	}
	return s
}

// simulate adds a simulated PoP, which writes the ith decision. A request goes to the same node in all
// simulated PoPs.
func (p *player) simulate(s *Simulation, i int) {
	p.spread = s.spread
	p.players = append(p.players, func(b *batch) {
		b.instant.Wait()
		for j := range b.requests {
			r := &b.requests[j]
			if r.cold {
				s.pass(r.entry.Time, r.node, r.waits)
				continue
			}
			var d limit.Decision
			s.decide(&d, &r.entry, r.addr, r.node)
			r.decided[i] = ruling{verdict: d.Verdict, rule: d.Rule, until: d.Deadline().UnixMicro()}
		}
	})
}

// add adds the next request of the log.
func (p *player) add(e *accesslog.Entry) {
	if p.next == nil {
		p.next = p.empty()
	}
	b := p.next
	b.requests = b.requests[:len(b.requests)+1]
	r := &b.requests[len(b.requests)-1]
	r.entry = *e
	r.entry.Header = nil
	if p.fields && len(e.Header) > 0 {
		from := len(b.fields)
		b.fields = append(b.fields, e.Header...)
		r.entry.Header = b.fields[from:len(b.fields):len(b.fields)]
	}
	p.n++
	r.number = p.n
	if p.n == 1 {
		p.first, p.last = e.Time, e.Time
	}
	p.last = max(p.last, e.Time)
	r.now = p.last
	r.addr = e.Address()
	r.network = p.client.Client(r.addr)
	r.client = r.network.As16()
	r.hash = client.Hash(&r.client)
	if p.owners > 1 {
		hash := r.hash
		if p.byHost {
			req := rule.Request{Host: e.Host}
			req.Canonicalize(p.client)
			hash = maphash.String(hosts, req.Host)
		} else if network := accesslog.Client(p.widest.Client(r.addr).As16()); network != r.client {
			hash = client.Hash(&network)
		}
		r.owner = uint32(hash >> 32 * uint64(p.owners) >> 32)
	}
	if len(b.requests) == requestsInBatch {
		p.pass()
	}
}

// hosts is the seed of the hashes of hosts.
var hosts = maphash.MakeSeed()

// pass gives the next batch to all players.
func (p *player) pass() {
	if p.queues == nil {
		for _, play := range p.players {
			q := make(chan *batch, maxPlaying)
			p.queues = append(p.queues, q)
			go func() {
				for b := range q {
					play(b)
					b.playing.Done()
				}
			}()
		}
	}
	p.spread.draw(p.next.requests)
	p.next.instant.Add(p.instants)
	p.next.playing.Add(len(p.players))
	for _, q := range p.queues {
		q <- p.next
	}
	p.playing, p.next = append(p.playing, p.next), nil
}

// empty returns a batch without requests.
func (p *player) empty() *batch {
	if len(p.playing) == maxPlaying {
		return p.collect()
	}
	return &batch{requests: make([]replayedRequest, 0, requestsInBatch)}
}

// collect waits for the oldest batch, passes on its requests, and returns it empty.
func (p *player) collect() *batch {
	b := p.playing[0]
	p.playing = p.playing[:copy(p.playing, p.playing[1:])]
	b.playing.Wait()
	for i := range b.requests {
		p.done(&b.requests[i])
	}
	clear(b.requests) // frees the text of the log
	clear(b.fields)
	b.requests, b.fields = b.requests[:0], b.fields[:0]
	return b
}

// finish passes on all requests, and ends the goroutines.
func (p *player) finish() {
	if p.next != nil {
		p.pass()
	}
	for len(p.playing) > 0 {
		p.collect()
	}
	for _, q := range p.queues {
		close(q)
	}
	p.queues = nil
}
