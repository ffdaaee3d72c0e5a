package pop

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// operations returns what operators can see and do here.
func (n *Node) operations() *admin.Operations {
	return &admin.Operations{Mitigations: n.mitigations, Lift: n.liftHex, KeyOf: n.keyOf, Shards: n.ring.states, Drain: n.Drain}
}

// mitigations returns what is mitigated, and what was lifted, the ones that end last first.
func (n *Node) mitigations() (all []admin.Mitigation) {
	now := n.o.Now()
	for _, r := range n.table.Records(now) {
		m := admin.Mitigation{
			Key: r.Key.String(), Start: time.UnixMicro(r.Start).UTC(), Left: r.Deadline.Sub(now).Seconds(), Lifted: r.Lifted,
			Why: r.Why.String(), Period: float64(r.Why.Limit.Period) / 1e6,
		}
		if s := r.Sample; s != nil {
			m.Rule = s.Rule
			if n.o.LogClients {
				m.Client, m.Method, m.Host, m.Path = s.Client.String(), s.Method, s.Host, s.Path
			}
		}
		all = append(all, m)
	}
	return all
}

func (n *Node) liftHex(text string) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(counter.Key{}) {
		return admin.Unknown(fmt.Sprintf("pop: %q is no key, which has 32 hexadecimal digits", text))
	}
	_, err = n.Lift(counter.Key(b))
	if err == limit.ErrNotMitigated {
		return admin.Unknown(fmt.Sprintf("pop: %s is not mitigated", text))
	}
	return err
}

// keyOf returns the key of a client of a rule that counts by ip alone.
func (n *Node) keyOf(id string, client netip.Addr) (string, error) {
	rules := n.Rules().Rules()
	i := slices.IndexFunc(rules, func(r *rule.Rule) bool { return r.ID == id })
	if i < 0 {
		return "", admin.Unknown("pop: there is no rule " + id)
	}
	for _, c := range rules[i].Characteristics {
		if c.Kind != rule.IP {
			return "", fmt.Errorf("pop: rule %s does not count by ip alone; give the key, which log lines have", id)
		}
	}
	req := rule.Request{Addr: client}
	req.Canonicalize(n.o.Client)
	what, _ := rules[i].AppendKey(nil, &req)
	return n.secret.Tag(what).String(), nil
}
