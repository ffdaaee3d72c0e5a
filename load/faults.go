package load

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// A Fault is something that the target does wrong, whatever its lag.
type Fault struct {
	Name     string   `json:"name"`
	Text     string   `json:"text"`
	Requests uint64   `json:"requests"`
	Node     string   `json:"node,omitempty"`
	Clients  []string `json:"clients,omitempty"` // the first of those that it concerns
}

// Names of faults.
const (
	ThresholdHigh  = "threshold_high"           // refuses one request too late
	ThresholdLow   = "threshold_low"            // refuses one request too early
	FixedWindow    = "fixed_window"             // forgets the window before
	DeafNode       = "node_ignores_mitigations" // one node lets through what others refuse
	RefusesSome    = "refuses_innocent"         // some clients are refused for nothing
	RetryTooShort  = "retry_after_too_short"
	HeadersDiffer  = "headers_disagree"
	LeaksElsewise  = "leaks"           // what should be refused passes, for no reason that is known
	RefusesWrongly = "refuses_wrongly" // what should pass is refused, for no reason that is known
)

// mostOf reports whether part is nearly all of whole: nine tenths.
func mostOf(part, whole int) bool { return whole > 0 && 10*part >= 9*whole }

// faults finds out what explains what nothing else does.
func (x *oracle) faults(s *Score, j *judgement) {
	s.Faults = []Fault{}
	found := func(name string, requests int, format string, args ...any) *Fault {
		s.Faults = append(s.Faults, Fault{Name: name, Requests: uint64(requests), Text: fmt.Sprintf(format, args...)})
		return &s.Faults[len(s.Faults)-1]
	}
	leaks, wrong, returned, headers := j.leaks, j.wrong, s.RetryAfter, s.Headers
	innocent, others := x.innocent(j, wrong)
	if one, m, ok := x.asOne(j, innocent); ok {
		found(RefusesSome, len(innocent), "it refuses clients that never exceed a threshold; %s", x.distrust()).Clients = x.clients(innocent)
		// What is left is what is wrong with that one client.
		leaks, wrong, returned, headers = nil, nil, one.returned(m), one.headers()
	}
	explained := func(m model) bool {
		o := x.judge(m)
		return mostOf(len(leaks)+len(wrong)-len(o.leaks)-len(o.wrong), len(leaks)+len(wrong))
	}
	if node, ok := x.deaf(leaks); ok {
		f := found(DeafNode, len(leaks), "%s lets through what it should refuse, and other nodes do refuse", x.log.nodes[node])
		f.Node, f.Clients, leaks = x.log.nodes[node], x.clients(leaks), nil
	}
	switch {
	case len(leaks) == 0:
	case explained(model{more: 1}):
		found(ThresholdHigh, len(leaks), "it refuses as if each threshold were greater by one").Clients = x.clients(leaks)
		leaks = nil
	case explained(model{fixed: true}):
		found(FixedWindow, len(leaks), "it counts from the beginning of each window anew: twice the threshold passes at an edge").Clients = x.clients(leaks)
		leaks = nil
	}
	if len(wrong) > 0 && explained(model{more: -1}) {
		found(ThresholdLow, len(wrong), "it refuses as if each threshold were less by one").Clients = x.clients(wrong)
		wrong = nil
	}
	if len(wrong) > 0 && len(innocent) > 0 {
		found(RefusesSome, len(innocent), "it refuses clients that never exceed a threshold%s", x.early(innocent)).Clients = x.clients(innocent)
		wrong = others
	}
	if len(leaks) > 0 {
		found(LeaksElsewise, len(leaks), "requests pass that should be refused, longer than %v after their client crossed the threshold", x.o.Lag).Clients = x.clients(leaks)
	}
	if len(wrong) > 0 {
		found(RefusesWrongly, len(wrong), "requests are refused before a threshold is exceeded, or after that is over%s", x.early(wrong)).Clients = x.clients(wrong)
	}
	if returned.Untrue > 0 {
		found(RetryTooShort, int(returned.Untrue), "of %d clients that came back when they were told to, %d were refused again", returned.Checked, returned.Untrue)
	}
	if headers != (Headers{}) {
		found(HeadersDiffer, int(headers.sum()), "%s", headers)
	}
}

// asOne returns an oracle for which all clients are one, and its judgement, if that explains what
// nothing else does: the target does not believe who they are. innocent are refusals of clients
// that exceed nothing.
func (x *oracle) asOne(j *judgement, innocent []int32) (one *oracle, m *judgement, ok bool) {
	if len(innocent) == 0 || !x.log.o.Identity.tellsAddr() {
		return nil, nil, false
	}
	log := *x.log
	log.o.Identity.Forwarded, log.o.Identity.Proxy = false, 0
	one = newOracle(&log, x.o)
	m = one.judge(model{})
	differences := len(j.leaks) + len(j.wrong)
	return one, m, mostOf(differences-len(m.leaks)-len(m.wrong), differences)
}

// distrust asks whether the target believes who the clients are.
func (x *oracle) distrust() string {
	how, flags := "X-Forwarded-For", "--trusted-proxy "
	if x.log.o.Identity.Proxy != 0 {
		how, flags = "PROXY header", "--proxy-protocol --trusted-proxy "
	}
	var own []string
	for _, a := range x.sources {
		if p := netip.PrefixFrom(a, a.BitLen()).String(); !slices.Contains(own, p) {
			own = append(own, p)
		}
	}
	return fmt.Sprintf("does the PoP trust this machine's %s? (%s%s)", how, flags, strings.Join(own, ","))
}

// early says that records are all of the beginning, when what was counted before the run is
// remembered.
func (x *oracle) early(records []int32) string {
	if slices.ContainsFunc(records, func(i int32) bool { return x.alone(&x.log.records[i]) }) {
		return ""
	}
	return "; all of them so soon after the start that it may be for requests before this run"
}

// clients names the first clients of records.
func (x *oracle) clients(records []int32) (names []string) {
	seen := map[uint64]bool{}
	for _, i := range records {
		q := &x.log.records[i]
		if seen[q.client] {
			continue
		}
		if seen[q.client] = true; len(names) == x.o.Top {
			break
		}
		names = append(names, x.nameOf(q))
	}
	return names
}

// nameOf returns what a client is called.
func (x *oracle) nameOf(q *record) string {
	if id := x.log.o.Identity; !id.tellsAddr() && (id.Header != "" || id.Cookie != "") {
		return string(appendKey(nil, q.client))
	}
	return x.log.o.Source.Addr(q.client).String()
}

// deaf returns the node that nearly all leaks are of, if there are others that refuse.
func (x *oracle) deaf(leaks []int32) (node uint16, ok bool) {
	byNode, refusals := map[uint16]int{}, map[uint16]int{}
	keys := map[int32]bool{}
	for _, i := range leaks {
		byNode[x.log.records[i].node]++
		for _, k := range x.keysOf[x.first[i]] {
			keys[k] = true
		}
	}
	for i, o := range x.outcomes {
		if o == refused && slices.ContainsFunc(x.keysOf[x.first[i]], func(k int32) bool { return keys[k] }) {
			refusals[x.log.records[i].node]++
		}
	}
	for _, node = range slices.Sorted(maps.Keys(byNode)) {
		others := 0
		for other, n := range refusals {
			if other != node {
				others += n
			}
		}
		if mostOf(byNode[node], len(leaks)) && others > refusals[node] {
			return node, true
		}
	}
	return 0, false
}

// innocent divides records into those whose clients never exceed a threshold, and others.
func (x *oracle) innocent(j *judgement, records []int32) (innocent, others []int32) {
	for _, i := range records {
		if slices.ContainsFunc(x.keysOf[x.first[i]], func(n int32) bool { k := j.keys[n]; return k != nil && k.overEstimate }) {
			others = append(others, i)
		} else {
			innocent = append(innocent, i)
		}
	}
	return innocent, others
}
