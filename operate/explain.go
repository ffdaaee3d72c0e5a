package operate

import (
	"cmp"
	"strings"
	"time"

	"github.com/edgelimit/edge/rule"
)

// maxExplained is the maximum number of keys to explain in one response.
const maxExplained = 100

// Explain returns the state of a target: why it is refused, or how far it is from each limit. An address explains each
// rule that counts only by ip, network or label, and each mitigation that is known to be the client's.
func (o *Operator) Explain(values map[string]string) (Explanation, error) {
	now := o.Now()
	t, err := o.find(values, maxExplained, now)
	e := Explanation{Keys: []KeyState{}, Needs: t.needs, Listed: t.listed}
	for i := range t.keys {
		s := o.keyState(&t.keys[i], now)
		if r := t.keys[i].rule; r != nil && r.Action == rule.Shed {
			if client, err := ParseClient(values["ip"]); err == nil {
				s.Sheds = o.Limiter.Sheds(r, t.keys[i].key, o.Client.Client(client.Addr()), now)
			}
		}
		e.Keys = append(e.Keys, s)
	}
	return e, err
}

// keyState returns the state of a key.
func (o *Operator) keyState(f *found, now time.Time) KeyState {
	r, s := f.rule, KeyState{Key: f.key.String(), About: f.about, Limits: []LimitState{}}
	if r != nil {
		s.Rule, s.Action = r.ID, r.Action.String()
	}
	if record, ok := o.Table.Held(f.key, now); ok {
		if r != nil {
			record.Rule = cmp.Or(record.Rule, r.Fingerprint())
		}
		s.Mitigation = o.describe(&record, now)
		s.Action = cmp.Or(s.Action, s.Mitigation.Action)
	}
	if r == nil {
		return s
	}
	standings, err := o.Limiter.Standings(r, f.key, now)
	if err != nil {
		s.Problem = err.Error()
	}
	for _, of := range standings {
		s.Limits = append(s.Limits, LimitState{
			Threshold: of.Limit.Threshold, Period: float64(of.Limit.Period) / 1e6,
			Prev: of.Limit.Layout.Sum(of.Prev), Cur: of.Limit.Layout.Sum(of.Cur),
			Estimate:  of.Limit.Estimate(of.Prev, of.Cur, of.Elapsed).Float(),
			Remaining: of.Limit.Remaining(of.Prev, of.Cur, of.Elapsed), Text: of.String(),
		})
	}
	if f.bare && r.Overrides != "" {
		s.Problem = strings.Trim(s.Problem+"; the overrides of the rule may give this key other limits: give the rule and its values to see them", "; ")
	}
	return s
}
