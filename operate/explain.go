package operate

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// maxExplained is the maximum number of keys to explain in one response.
const maxExplained = 100

// Explain returns the state of a client, given by a key, by the ID of a refusal, by a rule and the values of its
// characteristics, or by an address alone. An address explains each rule that counts only by ip, network or label,
// and each mitigation that is known to be the client's.
func (o *Operator) Explain(values map[string]string) (Explanation, error) {
	now := o.Now()
	e := Explanation{Keys: []KeyState{}, Needs: []Need{}}
	if text, ok := values["key"]; ok {
		key, err := parseKey(text)
		if err != nil {
			return e, err
		}
		record, ok := o.Table.Held(key, now)
		if !ok {
			return e, Unknown(fmt.Sprintf("pop: %s is not mitigated; give the rule and its values to see how a client stands", text))
		}
		e.Keys = append(e.Keys, o.recordState(&record, now))
		return e, nil
	}
	if text, ok := values["id"]; ok {
		err := o.explainID(&e, text, now)
		return e, err
	}
	if _, ok := values["rule"]; ok {
		r, key, err := o.keyOf(values)
		if err == nil {
			e.Keys = append(e.Keys, o.keyState(r, key, now))
		}
		return e, err
	}
	client, err := netip.ParseAddr(values["ip"])
	if err != nil {
		return e, errors.New("pop: give an ip, the ID of a refusal, a key, or a rule and its values")
	}
	switch entry, access := o.Limiter.Rules().Entry(client); access {
	case rule.Allowed:
		e.Listed = &Listed{List: "allow", Network: entry.String()}
	case rule.Denied:
		e.Listed = &Listed{List: "deny", Network: entry.String()}
	}
	for _, r := range o.Limiter.Rules().Rules() {
		if len(e.Keys) == maxExplained {
			break
		}
		if !r.HasClient(client) {
			continue // the rule is for other networks
		}
		if r.ByAddress() {
			of, key, err := o.keyOfRequest(r, rule.Request{Addr: client})
			if err == nil {
				state := o.keyState(of, key, now)
				state.Sheds = of.Action == rule.Shed && o.Limiter.Sheds(of, key, o.Client.Client(client), now)
				e.Keys = append(e.Keys, state)
			}
			continue // otherwise the address has no label
		}
		e.Needs = append(e.Needs, Need{Rule: r.ID, Characteristics: names(r.Characteristics)})
	}
	for record := range o.Table.All(now) {
		known := slices.ContainsFunc(e.Keys, func(k KeyState) bool { return k.Key == record.Key.String() })
		if !known && len(e.Keys) < maxExplained && record.Client.IsValid() && o.Client.Client(record.Client) == o.Client.Client(client) {
			e.Keys = append(e.Keys, o.recordState(record, now))
		}
	}
	return e, nil
}

// explainID explains the mitigations whose refusals have this ID. Two keys may have the same ID.
func (o *Operator) explainID(e *Explanation, text string, now time.Time) error {
	id, ok := counter.ParseID(text)
	if !ok {
		return fmt.Errorf("pop: %q is not the ID of a refusal, such as 7kq2-m9xd", text)
	}
	for record := range o.Table.All(now) {
		if record.ID == id {
			e.Keys = append(e.Keys, o.recordState(record, now))
		}
	}
	if len(e.Keys) > 0 {
		return nil
	}
	if entry, ok := o.Limiter.DenyEntry(id); ok {
		e.Listed = &Listed{List: "deny", Network: entry.String()}
		return nil
	}
	return Unknown(fmt.Sprintf("pop: no active mitigation has the ID %v: it has ended, or another PoP refused the request; look for refusal_id=%v in the access log, "+
		"or give the client's address to see its state", id, id))
}

// keyOf returns a rule's key for the values of its characteristics, and the rule with the limits that its
// overrides give the key.
func (o *Operator) keyOf(values map[string]string) (r *rule.Rule, key counter.Key, err error) {
	id, ok := values["rule"]
	if !ok {
		return nil, key, Invalid("give a rule and the values of its characteristics, such as rule=login&ip=203.0.113.7")
	}
	if r = o.Limiter.Rules().Rule(id); r == nil {
		return nil, key, Unknown("pop: there is no rule " + id)
	}
	for name := range values { // without this value the key may belong to more clients than intended
		if name != "rule" && !countsBy(r.Characteristics, name) {
			return nil, key, Invalid(fmt.Sprintf("rule %s does not count by %q", r.ID, name))
		}
	}
	req, err := r.RequestFrom(func(c *rule.Characteristic) (string, bool) {
		value, ok := values[c.String()]
		return value, ok
	})
	if err != nil {
		return nil, key, fmt.Errorf("pop: %w", err)
	}
	return o.keyOfRequest(r, req)
}

// parseKey parses a key in hexadecimal.
func parseKey(text string) (counter.Key, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(counter.Key{}) {
		return counter.Key{}, Unknown(fmt.Sprintf("pop: %q is not a key: a key has 32 hexadecimal digits", text))
	}
	return counter.Key(b), nil
}

// keyOfRequest returns the key of r for a request, and r with the limits that its overrides give the key.
func (o *Operator) keyOfRequest(r *rule.Rule, req rule.Request) (of *rule.Rule, key counter.Key, err error) {
	req.Canonicalize(o.Client)
	material, counted := r.AppendKey(nil, &req)
	if !counted {
		return nil, key, fmt.Errorf("pop: rule %s does not count a request with these values", r.ID)
	}
	return o.Limiter.Rules().Override(r, material), o.Secret.Tag(material), nil
}

// countsBy reports whether name is one of the characteristics, or an alternative of one.
func countsBy(characteristics []rule.Characteristic, name string) bool {
	return slices.ContainsFunc(characteristics, func(c rule.Characteristic) bool {
		if c.Kind == rule.First {
			return countsBy(c.First, name)
		}
		return c.String() == name
	})
}

// recordState returns the state of the key of a record.
func (o *Operator) recordState(record *mitigation.Record, now time.Time) KeyState {
	r := o.Limiter.Rules().ByFingerprint(record.Rule)
	s := o.keyState(r, record.Key, now)
	if r != nil && r.Overrides != "" {
		s.Problem = strings.Trim(s.Problem+"; the overrides of the rule may give this key other limits: give the rule and its values to see them", "; ")
	}
	return s
}

// keyState returns the state of a key of r, which is nil if the rule is unknown.
func (o *Operator) keyState(r *rule.Rule, key counter.Key, now time.Time) KeyState {
	s := KeyState{Key: key.String(), Limits: []LimitState{}}
	if r != nil {
		s.Rule, s.Action = r.ID, r.Action.String()
	}
	if record, ok := o.Table.Held(key, now); ok {
		if r != nil {
			record.Rule = cmp.Or(record.Rule, r.Fingerprint())
		}
		s.Mitigation = o.describe(&record, now)
	}
	if r == nil {
		return s
	}
	standings, err := o.Limiter.Standings(r, key, now)
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
	return s
}
