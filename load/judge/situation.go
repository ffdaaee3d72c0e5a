package judge

import (
	"cmp"
	"slices"
)

// classify groups the violations that no mistake explains by when and where they happened, and reports the groups.
func (v *investigation) classify() {
	v.deafNode(func(own, others int) bool { return others > own })
	// The requests to compare a violation with, by its key and leak, in the order in which they were sent: the refusals
	// of the key and, unless it is a leak, its requests that passed.
	lines := map[violation][]*request{}
	for _, w := range v.left {
		lines[violation{key: w.key, leak: true}], lines[violation{key: w.key}] = nil, nil
	}
	for _, q := range v.j.sent {
		for _, k := range v.j.keys.of(q) {
			for _, shape := range []violation{{key: k, leak: true}, {key: k}} {
				if line, ok := lines[shape]; ok && (q.outcome == refused || q.outcome == passed && !shape.leak) {
					lines[shape] = append(line, q)
				}
			}
		}
	}
	var all []surroundings
	clients, individual, others := map[uint64]bool{}, 0, 0 // individual: refusals with no other refusal next to them
	for i := range v.left {
		s := v.surroundings(&v.left[i], lines)
		all = append(all, s)
		switch {
		case s.leak || s.key == nil || s.key.sheds():
		case s.before || s.after:
			others++
		default:
			individual++
			clients[s.request.Client] = true
		}
	}
	// A few random refusals, too, come next to one another, or next to a mitigation.
	random := len(clients) >= 3 && individual > 2*others
	for _, row := range situations {
		var requests []*request
		all = slices.DeleteFunc(all, func(s surroundings) bool {
			s.random = random
			fits := row.leak == s.leak && row.fits(s)
			if fits {
				requests = append(requests, s.request)
			}
			return fits
		})
		if len(requests) > 0 {
			v.add(row.name, requests, "%s", row.text)
		}
	}
}

// surroundings examines the requests before and after a violation.
func (v *investigation) surroundings(w *violation, lines map[violation][]*request) surroundings {
	line := lines[violation{key: w.key, leak: w.leak}]
	s := surroundings{violation: w, never: len(lines[violation{key: w.key, leak: true}]) == 0}
	s.over = slices.ContainsFunc(v.j.keys.of(w.request), (*key).over)
	at, found := slices.BinarySearchFunc(line, w.request, func(a, b *request) int { return cmp.Compare(a.i, b.i) })
	s.before = at > 0 && line[at-1].outcome == refused && (!w.leak || line[at-1].Sent >= w.since)
	if found {
		at++
	}
	s.after = at < len(line) && line[at].outcome == refused && (!w.leak || line[at].Sent <= w.until)
	return s
}

// plainlyDeaf is how many refusals by other nodes show that a node without any refusals is deaf: a mistake that all
// nodes make would hardly leave one of them without a refusal.
const plainlyDeaf = 20

// deafNode reports the node that lets through nearly all requests that should be refused, if deaf returns true for the
// numbers of refusals of the same keys by that node and by the others.
func (v *investigation) deafNode(deaf func(own, others int) bool) {
	leaks, _ := split(v.left)
	byNode, refusals, keys, total := map[int]int{}, map[int]int{}, map[*key]bool{}, 0
	for _, q := range leaks {
		byNode[q.Node]++
		for _, k := range v.j.keys.of(q) {
			keys[k] = true
		}
	}
	for _, q := range v.j.sent {
		if q.outcome == refused && slices.ContainsFunc(v.j.keys.of(q), func(k *key) bool { return keys[k] }) {
			refusals[q.Node]++
			total++
		}
	}
	for node, n := range byNode {
		if 10*n < 9*len(leaks) || !deaf(refusals[node], total-refusals[node]) {
			continue
		}
		its := v.take(func(w violation) bool { return w.leak && w.request.Node == node })
		name := v.j.trace.Nodes()[node]
		v.add(ignoresMitigations, its, "%s lets through what other nodes refuse", name).Node = name
	}
}
