package envoy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/edgelimit/edge/rule"
)

// ruleKeys are the keys of the entries that name a rule.
var ruleKeys = []string{"rule", "generic_key"}

type entries = []*ratelimit.RateLimitDescriptor_Entry

// value returns the value of the first of keys that has an entry. If none has, ok is false.
func value(all entries, keys ...string) (value string, ok bool) {
	for _, key := range keys {
		for _, e := range all {
			if strings.EqualFold(e.GetKey(), key) {
				return e.GetValue(), true
			}
		}
	}
	return "", false
}

// valueOf returns the value of a characteristic.
func valueOf(all entries, c *rule.Characteristic) (text string, ok bool) {
	switch {
	case c.Kind == rule.Header:
		return value(all, c.String(), c.Name)
	case c.Kind.Chosen():
		return value(all, c.String())
	}
	text, ok = value(all, c.Kind.Given()...)
	switch c.Kind {
	case rule.IP, rule.Network:
		text, _, _ = strings.Cut(text, "/") // of masked_remote_address
	case rule.Path:
		text, _, _ = strings.Cut(text, "?")
	}
	return text, ok
}

// decodeDescriptor returns the rule that d names and the request that d describes, or a cause and why d is invalid.
func decodeDescriptor(rules *rule.Set, d *ratelimit.RateLimitDescriptor) (r *rule.Rule, req *rule.Request, cause string, why error) {
	all := d.GetEntries()
	id, ok := value(all, ruleKeys...)
	switch r = rules.Rule(id); {
	case !ok:
		return nil, nil, causeRule, errors.New("the descriptor has no rule or generic_key entry")
	case r == nil:
		return nil, nil, causeRule, fmt.Errorf("there is no rule %q", id)
	case d.GetIsNegativeHits():
		return nil, nil, causeHits, errors.New("the hits_addend is negative, but counts never decrease")
	}
	request, why := r.RequestFrom(func(c *rule.Characteristic) (string, bool) { return valueOf(all, c) })
	if why != nil {
		return nil, nil, causeCharacteristic, why
	}
	request.Check()
	if !request.Addr.IsValid() { // for the access lists
		text, _ := valueOf(all, &rule.Characteristic{Kind: rule.IP})
		request.Addr, _ = netip.ParseAddr(text)
	}
	return r, &request, "", nil
}
