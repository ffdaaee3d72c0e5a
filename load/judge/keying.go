package judge

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/edgelimit/edge/rule"
)

// A variant is a way to derive the keys of requests. The zero value is the correct one.
type variant struct {
	alike  bool              // all clients have the generator's address
	client rule.ClientPrefix // if zero, that of the options
	share  bool              // requests without a value share a count even if the rule skips them
	apart  bool              // each node has its own keys
}

// A keying holds the keys of all requests.
type keying struct {
	senders []*sender // by request
	keys    []*key
}

// A sender holds the keys of all requests that look alike and come from the same client.
type sender struct {
	keys   []*key // none if the client is listed
	list   rule.Access
	client netip.Prefix
}

// A key identifies requests that a rule counts together.
type key struct {
	n     int // in keying.keys
	rule  *rule.Rule
	sent  int64 // number of requests
	width int

	overExact, overEstimate bool // it exceeds a threshold with all requests counted
}

func (k *key) over() bool { return k.overExact || k.overEstimate }

// most returns the maximum that r counts for k's requests.
func (k *key) most(r *rule.Rule) int64 { return k.sent * costOf(r) }

func (k *key) sheds() bool { return k.rule.Action == rule.Shed }

// countsStatus reports whether r counts requests that the origin answers with status.
func countsStatus(r *rule.Rule, status int) bool { return r.Statuses == nil || r.Statuses.Has(status) }

// countsRefused reports whether r may count a refused request.
func countsRefused(r *rule.Rule) bool { return r.CountWhileMitigated || r.CountRefused }

// costOf returns how much each request counts.
func costOf(r *rule.Rule) int64 { return max(1, int64(r.Cost)) }

func (k *keying) of(q *request) []*key { return k.senders[q.i].keys }

// keying determines the keys of all requests, once for each variant.
func (j *judgment) keying(v variant) *keying {
	if known := j.keyings[v]; known != nil {
		return known
	}
	all := &keying{senders: make([]*sender, len(j.requests))}
	j.keyings[v] = all
	senders, known, rules := map[[3]uint64]*sender{}, map[string]*key{}, map[[4]string][]*rule.Rule{}
	networks := slices.ContainsFunc(j.rules, func(r *rule.Rule) bool {
		return slices.ContainsFunc(r.AllMatches(), func(m rule.Match) bool { return len(m.Networks) > 0 })
	})
	for i := range j.requests {
		q := &j.requests[i]
		from := [...]uint64{q.Client, q.Look, 0}
		if v.apart {
			from[2] = uint64(q.Node)
		}
		s := senders[from]
		if s == nil {
			p := j.trace.Properties(i, v.alike)
			f := formOf(&p, cmp.Or(v.client, j.o.Client))
			f.labels = j.labels
			to := [...]string{p.Method, p.Host, p.Target, ""}
			if networks {
				to[3] = f.Addr.String()
			}
			list, found := rules[to]
			if !found {
				list = without(j.rules, func(r *rule.Rule) bool { return !acts(r) || len(paths(r, &f)) == 0 })
				rules[to] = list
			}
			access, _ := longest(j.lists, f.Addr)
			s = &sender{list: access, client: f.client}
			if access != rule.Unlisted {
				list = nil
			}
			for _, r := range list {
				for _, name := range keys(r, &f, v.share) {
					id := strconv.FormatUint(from[2], 10) + name
					k := known[id]
					if k == nil {
						k = &key{n: len(all.keys), rule: cmp.Or(j.plans[r][name], r), width: width(r)}
						known[id], all.keys = k, append(all.keys, k)
					}
					s.keys = append(s.keys, k)
				}
			}
			senders[from] = s
		}
		all.senders[i] = s
		if q.Answer.Failure != NotSent {
			for _, k := range s.keys {
				k.sent++
			}
		}
	}
	return all
}
