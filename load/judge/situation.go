package judge

import (
	"cmp"
	"slices"
)

// situations reports the violations that no mistake explains by when and where they happened.
func (v *investigation) situations() {
	v.deafNode(func(own, others int) bool { return others > own })
	keys := map[*key]bool{}
	for _, w := range v.left {
		keys[w.key] = true
	}
	lines, refusals := map[*key][]*request{}, map[*key][]*request{} // in the order in which they were sent
	for _, q := range v.j.sent {
		for _, k := range v.j.keys.of(q) {
			switch {
			case keys[k] && q.outcome == refused:
				refusals[k] = append(refusals[k], q)
				fallthrough
			case keys[k] && q.outcome == passed:
				lines[k] = append(lines[k], q)
			}
		}
	}
	by := map[string][]*request{}
	for i := range v.left {
		w := &v.left[i]
		s := v.surroundings(w, lines[w.key], refusals[w.key])
		for _, row := range situations {
			if row.leak == s.leak && row.fits(s) {
				by[row.name] = append(by[row.name], s.request)
				break
			}
		}
	}
	v.atRandom(by)
	for _, row := range situations {
		if len(by[row.name]) > 0 {
			v.add(row.name, by[row.name], "%s", row.text)
			delete(by, row.name)
		}
	}
}

// surroundings returns what happened before and after a violation, given the requests of its key.
func (v *investigation) surroundings(w *violation, line, refusals []*request) surroundings {
	s := surroundings{violation: w, over: v.over(w.key), never: len(refusals) == 0 && v.j.refuses}
	adjacent := refusals
	if !w.leak {
		adjacent = line
	}
	at, found := slices.BinarySearchFunc(adjacent, w.request, func(a, b *request) int { return cmp.Compare(a.i, b.i) })
	s.before = at > 0 && adjacent[at-1].outcome == refused && (!w.leak || adjacent[at-1].Sent >= w.since)
	if found {
		at++
	}
	s.after = at < len(adjacent) && adjacent[at].outcome == refused && (!w.leak || adjacent[at].Sent <= w.until)
	return s
}

// atRandom treats refusals as random if most are individual requests of several clients: a few random refusals follow
// one another, or a mitigation.
func (v *investigation) atRandom(by map[string][]*request) {
	random, clients := by[refusesAtWill], map[uint64]bool{}
	for _, q := range random {
		clients[q.Client] = true
	}
	delete(by, refusesAtWill)
	if others := slices.Concat(by[refusesSome], by[mitigationLong], by[refusesWrongly]); len(clients) >= 3 && len(random) > 2*len(others) {
		by[refusesAtWill], by[refusesSome], by[mitigationLong], by[refusesWrongly] = append(random, others...), nil, nil, nil
		return
	}
	for _, q := range random {
		name := refusesSome
		if slices.ContainsFunc(v.j.keys.of(q), v.over) {
			name = refusesWrongly
		}
		by[name] = append(by[name], q)
	}
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
		v.add(deafNode, its, "%s lets through what other nodes refuse", name).Node = name
	}
}
