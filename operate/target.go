package operate

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A target has the keys that operators name by a client's address, a network, the ID of a refusal, a key, or values of
// characteristics with or without a rule. See ParseTarget.
type target struct {
	keys   []foundKey
	needs  []Need // rules that need further values
	listed *Listed
}

// A foundKey is a key that a target stands for.
type foundKey struct {
	rule  *rule.Rule // nil if it is not known
	key   counter.Key
	about string
	addr  netip.Addr // a client's, if it is known
	bare  bool       // the key comes from its record, so the limits that overrides give it are not known
}

// find returns the target that values name. most is the maximum number of its keys.
func (o *Operator) find(values map[string]string, most int, now time.Time) (t target, err error) {
	t.needs = []Need{}
	switch text := values["key"]; {
	case text != "" && len(values) == 1:
		key, err := parseKey(text)
		if err != nil {
			return t, err
		}
		record, ok := o.Table.Held(key, now)
		if !ok {
			return t, Unknown(fmt.Sprintf("operate: %s is not mitigated; give the rule and its values to see a client's state", text))
		}
		t.keys = []foundKey{o.ofRecord(&record)}
	case values["id"] != "" && len(values) == 1:
		err = o.findID(&t, values["id"], now)
	case values["rule"] != "":
		f, wrong := o.keyOf(values)
		if err = wrong; err == nil {
			t.keys, t.listed = []foundKey{f}, o.listed(o.clientOf(values), netip.Prefix{})
		}
	default:
		err = o.findClient(&t, values, most, now)
	}
	return t, err
}

// findID finds the mitigations whose refusals have this ID. Two keys may have the same ID.
func (o *Operator) findID(t *target, text string, now time.Time) error {
	id, ok := counter.ParseID(text)
	if !ok {
		return fmt.Errorf("operate: %q is not the ID of a refusal, such as 7kq2-m9xd", text)
	}
	for record := range o.Table.All(now) {
		if record.ID == id {
			t.keys = append(t.keys, o.ofRecord(record))
		}
	}
	if len(t.keys) > 0 {
		return nil
	}
	if entry, ok := o.Limiter.DenyEntry(id); ok {
		t.listed = &Listed{List: "deny", Network: entry.String()}
		return nil
	}
	return Unknown(fmt.Sprintf("operate: no active mitigation has the ID %v: it has ended, or another PoP refused the request; look for refusal_id=%v in the access log, "+
		"or give the client's address to see its state", id, id))
}

// findClient finds the mitigated keys of a client or a network, and the keys of all rules whose characteristics
// values have.
func (o *Operator) findClient(t *target, values map[string]string, most int, now time.Time) error {
	var network netip.Prefix
	var err error
	if text, ok := values["network"]; ok {
		network, err = ParseClient(text)
	}
	client := o.clientOf(values)
	if text, ok := values["ip"]; ok && !client.IsValid() {
		return Invalid(fmt.Sprintf("%q is not an address", text))
	}
	if err != nil || len(values) == 0 {
		return Invalid("give an address, a network, the ID of a refusal, a key, or a rule and its values")
	}
	t.listed = o.listed(client, network)
	for _, r := range o.Limiter.Rules().Rules() {
		if len(t.keys) >= most {
			break
		}
		if client.IsValid() && !r.HasClient(client) {
			continue // the rule is for other networks
		}
		all, partly := suffices(r, values)
		if all {
			req, err := r.RequestFrom(func(c *rule.Characteristic) (string, bool) { return valueOf(c, values) })
			if client.IsValid() {
				req.Addr = client
			}
			if err != nil {
				continue // the rule does not count such values
			}
			if f, err := o.keyOfRequest(r, req); err == nil { // otherwise the address has no label
				t.keys = append(t.keys, f)
			}
		} else if client.IsValid() || partly {
			t.needs = append(t.needs, Need{r.ID, prose.Texts(r.Characteristics, rule.Characteristic.String)})
		}
	}
	if client.IsValid() {
		f := o.keyOfClient(client)
		if _, ok := o.Table.Held(f.key, now); ok {
			t.keys = append(t.keys, f)
		}
	}
	for record := range o.Table.All(now) {
		theirs := client.IsValid() && o.Client.Client(record.Client) == o.Client.Client(client) || network.IsValid() && network.Contains(record.Client)
		if !theirs || len(t.keys) >= most || slices.ContainsFunc(t.keys, func(f foundKey) bool { return f.key == record.Key }) {
			continue
		}
		t.keys = append(t.keys, o.ofRecord(record))
	}
	if len(t.keys)+len(t.needs) == 0 && !client.IsValid() && !network.IsValid() {
		return Unknown("operate: no rule counts by these values")
	}
	if unknown := unknownNames(values, o.Limiter.Rules().Rules(), "ip", "network"); len(unknown) > 0 {
		return Invalid(fmt.Sprintf("no rule counts by %q", unknown[0]))
	}
	return nil
}

// unknownNames returns the names in values, sorted, that are neither known nor characteristics by which rules count. A
// target that ignored such a value could stand for more clients than intended.
func unknownNames(values map[string]string, rules []*rule.Rule, known ...string) []string {
	for _, r := range rules {
		for c := range r.Leaves() {
			known = append(known, c.String())
		}
	}
	isKnown := func(name string) bool { return slices.Contains(known, name) }
	return slices.DeleteFunc(slices.Sorted(maps.Keys(values)), isKnown)
}

// clientOf returns the address of the client that values name, or an invalid one.
func (o *Operator) clientOf(values map[string]string) netip.Addr {
	client, _ := netip.ParseAddr(values["ip"])
	return o.Client.Unmap(client.WithZone(""))
}

// listed returns the entry of an access list that applies to all requests of a client or a network, or nil.
func (o *Operator) listed(client netip.Addr, network netip.Prefix) *Listed {
	if network.IsValid() {
		client = network.Addr()
	}
	entry, access := o.Limiter.Rules().Entry(client)
	switch {
	case !client.IsValid() || network.IsValid() && entry.Bits() > network.Bits():
	case access == rule.Allowed:
		return &Listed{List: "allow", Network: entry.String()}
	case access == rule.Denied:
		return &Listed{List: "deny", Network: entry.String()}
	}
	return nil
}

// suffices reports whether values have all characteristics of r, and whether they have at least one. An address counts
// as all characteristics that depend on it alone.
func suffices(r *rule.Rule, values map[string]string) (all, partly bool) {
	all = true
	for i := range r.Characteristics {
		c := &r.Characteristics[i]
		_, named := valueOf(c, values)
		ok := named
		for j := range c.First {
			_, given := values[c.First[j].String()]
			named = named || given && c.First[j].Kind != rule.IP
			_, has := valueOf(&c.First[j], values)
			ok = has && (j == 0 || ok)
		}
		_, ip := values["ip"]
		partly = partly || named
		all = all && (ok || named || c.Kind == rule.Label && ip)
	}
	return all, partly
}

// valueOf returns the value that values have for c.
func valueOf(c *rule.Characteristic, values map[string]string) (value string, ok bool) {
	value, ok = values[c.String()]
	if !ok && c.Kind == rule.Network {
		if value, ok = values["ip"]; !ok {
			value, ok = values["network"]
		}
	}
	return value, ok
}

// ruleOf returns the rule with an ID. It returns nil if id stands for clients that operators refuse regardless of
// rules.
func (o *Operator) ruleOf(id string) (*rule.Rule, error) {
	r := o.Limiter.Rules().Rule(id)
	if r == nil && id != anyRule && id != anyRuleName {
		return nil, Unknown("operate: there is no rule " + id)
	}
	return r, nil
}

// keyOf returns the key that values name: that of a rule for the values of its characteristics, or that of a client
// that operators refuse regardless of rules.
func (o *Operator) keyOf(values map[string]string) (f foundKey, err error) {
	r, err := o.ruleOf(values["rule"])
	if err != nil {
		return f, err
	}
	if r == nil {
		client := o.clientOf(values)
		if !client.IsValid() || len(values) != 2 {
			return f, Invalid("rule any counts by ip alone: give rule=any,ip=ADDRESS")
		}
		return o.keyOfClient(client), nil
	}
	if unknown := unknownNames(values, []*rule.Rule{r}, "rule"); len(unknown) > 0 {
		return f, Invalid(fmt.Sprintf("rule %s does not count by %q", r.ID, unknown[0]))
	}
	req, err := r.RequestFrom(func(c *rule.Characteristic) (string, bool) {
		value, ok := values[c.String()]
		return value, ok
	})
	if err != nil {
		return f, fmt.Errorf("operate: %w", err)
	}
	return o.keyOfRequest(r, req)
}

// keyOfClient returns the key under which operators refuse a client regardless of rules.
func (o *Operator) keyOfClient(client netip.Addr) foundKey {
	key := o.Limiter.ClientKey(o.Client.Client(client))
	return foundKey{key: key, addr: client, about: o.Limiter.AboutKey(nil, key, rule.Request{Addr: client})}
}

// keyOfRequest returns the key of r for a request, with the limits that its overrides give the key.
func (o *Operator) keyOfRequest(r *rule.Rule, req rule.Request) (f foundKey, err error) {
	read := req
	read.Canonicalize(o.Client)
	material, counted := r.AppendKey(nil, &read)
	if !counted {
		return f, fmt.Errorf("operate: rule %s does not count a request with these values", r.ID)
	}
	r = r.Override(material)
	key := o.Secret.Tag(material)
	return foundKey{rule: r, key: key, addr: req.Addr, about: o.Limiter.AboutKey(r, key, req)}, nil
}

// ofRecord returns the key of a record, with its rule.
func (o *Operator) ofRecord(record *mitigation.Record) foundKey {
	r := o.Limiter.Rules().ByFingerprint(record.Rule)
	return foundKey{rule: r, key: record.Key, addr: record.Client, about: o.about(r, record), bare: true}
}

// about describes what a record's rule counts under the record's key. If the rule is not known, r is nil.
func (o *Operator) about(r *rule.Rule, record *mitigation.Record) string {
	if r == nil && record.Rule != mitigation.AnyRule {
		return ""
	}
	return o.Limiter.About(r, record)
}

// parseKey parses a key in hexadecimal.
func parseKey(text string) (counter.Key, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(counter.Key{}) {
		return counter.Key{}, Unknown(fmt.Sprintf("operate: %q is not a key: a key has 32 hexadecimal digits", text))
	}
	return counter.Key(b), nil
}

// named returns the text with which values name a target, for messages.
func named(values map[string]string) string {
	for _, name := range []string{"ip", "network", "key", "id"} {
		if text := values[name]; text != "" && values["rule"] == "" {
			return strings.TrimSpace(text)
		}
	}
	return "this client"
}
