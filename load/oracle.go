package load

import (
	"cmp"
	"net"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// OracleOptions say what a run is held against. Rules are required; the zero value of every
// other field is usable.
type OracleOptions struct {
	Rules *rule.Set

	// Client says which part of an address is one client, as the nodes are told.
	Client rule.ClientPrefix

	// Lag is how long the PoP may take until all nodes have counted a request, and know of
	// the mitigation that follows. If zero, 500 ms.
	Lag time.Duration

	// Skew is how far clocks may be apart: the generator's and the nodes'. If zero, 5 ms.
	Skew time.Duration

	// Top is how many clients are named. If zero, 10.
	Top int
}

// An oracle knows what a run should have been answered.
type oracle struct {
	o       OracleOptions
	log     *Log
	slack   slack
	began   int64 // in microseconds since the Unix epoch
	sources []netip.Addr
	memory  int64 // the longest period or mitigation timeout

	// Of each record: which keys it has in keysOf, and what it is.
	first    []int32
	keysOf   [][]int32 // indexes of keys that are enforced
	outcomes []outcome
	keys     []keyInfo
	events   []event

	exact, estimate []bool // of each record: whether a limiter would refuse it
	rules           []*rule.Rule
	exactRules      []int16
}

// A keyInfo is a key, whoever judges it.
type keyInfo struct {
	rule *rule.Rule
	sent uint64 // requests
}

// An outcome is what became of a request, as far as rules are concerned.
type outcome uint8

const (
	passed  outcome = iota
	refused         // by a rule
	unknown         // it may have been counted, or not
	unmade          // it did not reach the target
	outside         // no rule is concerned, or a list decides
)

// An event is that a request was sent, or answered, at a time in microseconds since the
// beginning.
type event struct {
	at     int64
	record int32
	answer bool
}

// newOracle looks at the requests of a run. What limiters would have decided is for decide.
func newOracle(l *Log, o OracleOptions) *oracle {
	o.Lag, o.Skew = cmp.Or(o.Lag, 500*time.Millisecond), cmp.Or(o.Skew, 5*time.Millisecond)
	o.Top = cmp.Or(o.Top, 10)
	x := &oracle{o: o, log: l, slack: slack{o.Lag.Microseconds(), o.Skew.Microseconds()}, began: l.Began.UnixMicro(), rules: o.Rules.Rules()}
	for _, t := range l.o.Targets {
		x.sources = append(x.sources, ownAddr(t.Addr))
	}
	for _, r := range x.rules {
		x.memory = max(x.memory, r.MitigationTimeout.Microseconds())
		for _, l := range r.Limits {
			x.memory = max(x.memory, l.Period.Microseconds())
		}
	}
	x.find()
	x.order()
	return x
}

// ownAddr returns the address that connections to a target come from.
func ownAddr(to netip.AddrPort) netip.Addr {
	c, err := net.Dial("udp", to.String()) // sends nothing
	if err != nil {
		return netip.IPv6Unspecified()
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// entry writes a record as a log tells it. The status is the origin's: where the origin was
// not asked, what it would have answered.
func (x *oracle) entry(q *record, e *accesslog.Entry) {
	look, id := x.log.looks[q.look-1], &x.log.o.Identity
	*e = accesslog.Entry{Time: x.began + q.sent, Method: look.Method, Host: cmp.Or(look.Host, x.log.o.Targets[q.target].Name), Header: e.Header[:0]}
	target := cmp.Or(look.Target, x.log.o.Targets[q.target].Path)
	e.Path, e.Query = splitTarget(target)
	e.Addr = x.sources[q.target]
	if id.tellsAddr() {
		e.Addr = x.log.o.Source.Addr(q.client)
	}
	e.Client = e.Addr.String()
	if look.Agent != "" {
		e.Header = append(e.Header, accesslog.Field{Name: "User-Agent", Value: look.Agent})
	}
	for _, h := range x.log.o.Header {
		e.Header = append(e.Header, accesslog.Field{Name: textproto.CanonicalMIMEHeaderKey(h[0]), Value: h[1]})
	}
	key := string(appendKey(nil, q.client))
	if id.Header != "" {
		e.Header = append(e.Header, accesslog.Field{Name: textproto.CanonicalMIMEHeaderKey(id.Header), Value: key})
	}
	if id.Cookie != "" {
		e.Header = append(e.Header, accesslog.Field{Name: "Cookie", Value: id.Cookie + "=" + key})
	}
	e.Status = int(q.status)
	if q.status == 0 || x.refusal(q) {
		e.Status = cmp.Or(look.Status, 200)
	}
}

// find finds the keys of all records, and what became of them.
func (x *oracle) find() {
	n := len(x.log.records)
	x.first, x.outcomes = make([]int32, n), make([]outcome, n)
	finder := newKeyFinder(x)
	var e accesslog.Entry
	for i := range x.log.records {
		q := &x.log.records[i]
		x.entry(q, &e)
		x.first[i] = finder.find(q, &e)
		if x.outcomes[i] = x.outcome(q, x.first[i]); x.outcomes[i] != unmade {
			for _, k := range x.keysOf[x.first[i]] {
				x.keys[k].sent++
			}
		}
	}
}

// decide finds what an exact limiter and one that estimates would have answered.
func (x *oracle) decide() error {
	exact, err := analysis.NewExact(x.o.Client, x.o.Rules)
	if err != nil {
		return err
	}
	estimate, err := analysis.NewSimulation(analysis.PoPOptions{Client: x.o.Client}, x.o.Rules)
	if err != nil {
		return err
	}
	n := len(x.log.records)
	x.exact, x.estimate, x.exactRules = make([]bool, n), make([]bool, n), make([]int16, n)
	var e accesslog.Entry
	for i := range x.log.records {
		x.exactRules[i] = -1
		if x.outcomes[i] == unmade || !x.busy(x.first[i]) {
			continue
		}
		x.entry(&x.log.records[i], &e)
		d := exact.Decide(&e)
		if x.exact[i] = d.Verdict.Refused(); d.Rule != nil {
			x.exactRules[i] = int16(d.Rule.Index)
		}
		d = estimate.Decide(&e)
		x.estimate[i] = d.Verdict.Refused()
	}
	return nil
}

// busy reports whether one of the keys had enough requests in the whole run to exceed a
// threshold. Of others no limiter has to remember anything, and there may be a million.
func (x *oracle) busy(keys int32) bool {
	return slices.ContainsFunc(x.keysOf[keys], func(n int32) bool {
		k := &x.keys[n]
		return slices.ContainsFunc(k.rule.Limits, func(l rule.Limit) bool { return k.sent > l.Threshold })
	})
}

// modest reports whether none of the keys had so many requests in the whole run that nothing
// of a limit remained.
func (x *oracle) modest(keys int32) bool {
	return !slices.ContainsFunc(x.keysOf[keys], func(n int32) bool {
		k := &x.keys[n]
		return slices.ContainsFunc(k.rule.Limits, func(l rule.Limit) bool { return k.sent >= l.Threshold })
	})
}

// alone reports whether a request was sent so late that what the target counted before the run
// no longer matters.
func (x *oracle) alone(q *record) bool { return q.sent > 2*x.memory+x.slack.lag }

// outcome says what became of a request.
func (x *oracle) outcome(q *record, keys int32) outcome {
	switch {
	case q.failure == notSent:
		return unmade
	case keys == 0:
		return outside
	case q.failure == closed && x.closes(keys):
		return refused
	case q.failure != answered:
		return unknown
	case x.refusal(q):
		return refused
	}
	return passed
}

// closes reports whether one of the rules ends connections.
func (x *oracle) closes(keys int32) bool {
	return slices.ContainsFunc(x.keysOf[keys], func(k int32) bool { return x.keys[k].rule.Action == rule.Close })
}

// refusal reports whether an answer is that of a rule.
func (x *oracle) refusal(q *record) bool {
	if q.failure != answered || q.status == 0 {
		return false
	}
	for _, r := range x.rules {
		switch status := r.Response.Status; {
		case r.Action == rule.Log, int(q.status) != status:
		case r.Action == rule.ShadowBan:
			if q.flags&prepared != 0 {
				return true
			}
		case q.retry > 0, status == 429, q.flags&prepared != 0:
			return true
		}
	}
	return q.status == 503 && q.retry > 0 // its shard is not available
}

// order sorts what happened.
func (x *oracle) order() {
	for i := range x.log.records {
		q := &x.log.records[i]
		if o := x.outcomes[i]; o == unmade || o == outside {
			continue
		}
		x.events = append(x.events, event{q.sent, int32(i), false}, event{q.done, int32(i), true})
	}
	slices.SortFunc(x.events, func(a, b event) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.answer == b.answer {
			return c
		}
		if a.answer {
			return 1
		}
		return -1
	})
}

// A keyFinder finds the keys of requests.
type keyFinder struct {
	x       *oracle
	found   map[asker]int32
	numbers map[string]int32
	text    []byte
	matched []*rule.Rule
}

// An asker is what keys depend on.
type asker struct {
	client uint64
	look   uint32
	target uint16
}

func newKeyFinder(x *oracle) *keyFinder {
	x.keysOf = [][]int32{nil} // of what no rule concerns
	return &keyFinder{x: x, found: map[asker]int32{}, numbers: map[string]int32{}}
}

// find returns the index of the keys of a record in keysOf.
func (f *keyFinder) find(q *record, e *accesslog.Entry) int32 {
	who := asker{q.client, q.look, q.target}
	if i, ok := f.found[who]; ok {
		return i
	}
	req := analysis.RequestOf(e)
	req.Canonicalize(f.x.o.Client)
	var keys []int32
	if f.x.o.Rules.Access(req.Addr) == rule.Unlisted {
		f.matched = f.x.o.Rules.Match(&req, f.matched[:0])
		for _, r := range f.matched {
			if r.Action == rule.Log {
				continue
			}
			if text, counted := r.AppendKey(f.text[:0], &req); counted {
				f.text = text
				n, ok := f.numbers[string(text)]
				if !ok {
					n = int32(len(f.x.keys))
					f.numbers[string(text)] = n
					f.x.keys = append(f.x.keys, keyInfo{rule: r})
				}
				keys = append(keys, n)
			}
		}
	}
	i := int32(0)
	if len(keys) > 0 {
		slices.SortFunc(keys, func(a, b int32) int { return cmp.Compare(f.x.keys[a].rule.Index, f.x.keys[b].rule.Index) })
		i = int32(len(f.x.keysOf))
		f.x.keysOf = append(f.x.keysOf, keys)
	}
	f.found[who] = i
	return i
}

// splitTarget splits a request's target into path and query.
func splitTarget(target string) (path, query string) {
	path, query, _ = strings.Cut(target, "?")
	return path, query
}
