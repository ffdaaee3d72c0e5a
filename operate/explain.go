package operate

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/edgelimit/edge/rule"
)

// maxExplained is the maximum number of keys to explain in one response.
const maxExplained = 100

// Explain returns the state of a target: why it is refused, or how far it is from each limit. For an address, it
// explains each rule that counts only by ip, network or label, and each mitigation that is known to be the client's.
func (o *Operator) Explain(values map[string]string) (Explanation, error) {
	now := o.Now()
	t, err := o.find(values, maxExplained, now)
	e := Explanation{Keys: []KeyState{}, Needs: t.needs, Listed: t.listed}
	var pass []KeyState
	for i := range t.keys {
		if s, refused := o.keyState(&t.keys[i], t.listed, o.clientOf(values), now); refused {
			e.Keys = append(e.Keys, s)
		} else {
			pass = append(pass, s)
		}
	}
	e.Keys = append(e.Keys, pass...)
	return e, err
}

// spares returns why r, which may be nil, never applies to a client, as far as the client's address tells, or "" if it
// may apply.
func spares(r *rule.Rule, listed *Listed, client netip.Addr) string {
	switch {
	case listed != nil:
		return fmt.Sprintf("the %s list has %s", listed.List, listed.Network)
	case r == nil || !client.IsValid():
	case !r.HasClient(client):
		return fmt.Sprintf("its networks do not have %v", client)
	case r.Excepts(client):
		return fmt.Sprintf("its except has %v", client)
	}
	return ""
}

// keyState returns the state of a key, and whether its requests are refused; if client is valid, only those of client.
func (o *Operator) keyState(f *foundKey, listed *Listed, client netip.Addr, now time.Time) (s KeyState, refused bool) {
	r := f.rule
	s = KeyState{Key: f.key.String(), About: f.about, Limits: []LimitState{}, Spared: spares(r, listed, client)}
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
	refused = s.Refused()
	if r == nil {
		if client.IsValid() && f.key == o.keyOfClient(client).key {
			s.Action = "deny"
		}
		return s, refused
	}
	if r.Action == rule.Shed && client.IsValid() {
		s.Sheds = refused && o.Limiter.Sheds(r, f.key, o.Client.Client(client), now)
		refused = s.Sheds
	}
	s.Unavailable = s.Spared == "" && !refused && r.FailsClosed() && o.Limiter.Unavailable(f.key)
	standings, err := o.Limiter.Standings(r, f.key, now)
	if err != nil {
		s.Problem = err.Error()
	}
	for _, w := range standings {
		s.Limits = append(s.Limits, LimitState{
			Threshold: w.Limit.Threshold, Period: float64(w.Limit.Period) / 1e6,
			Prev: w.Limit.Layout.Sum(w.Prev), Cur: w.Limit.Layout.Sum(w.Cur),
			Estimate:  w.Limit.Estimate(w.Prev, w.Cur, w.Elapsed).Float(),
			Remaining: w.Limit.Remaining(w.Prev, w.Cur, w.Elapsed), Text: w.String(),
		})
	}
	if f.bare && r.Overrides != "" {
		s.Problem = strings.Trim(s.Problem+"; the overrides of the rule may give this key other limits: give the rule and its values to see them", "; ")
	}
	return s, refused || s.Unavailable
}
