package envoy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/edgelimit/edge/rule"
)

// The keys of the entries that name a rule, and of those with the values of characteristics that have no name of their
// own. They include Envoy's keys and other common ones.
var (
	ruleKeys = []string{"rule", "generic_key"}
	keysOf   = map[rule.Kind][]string{
		rule.IP:     {"ip", "remote_address", "masked_remote_address"},
		rule.Host:   {"host", ":authority", "authority"},
		rule.Path:   {"path", ":path"},
		rule.Method: {"method", ":method", "http_method", "request_method"},
	}
)

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
	switch c.Kind {
	case rule.IP, rule.Network:
		text, ok = value(all, keysOf[rule.IP]...)
		text, _, _ = strings.Cut(text, "/") // of masked_remote_address
	case rule.Path:
		text, ok = value(all, keysOf[rule.Path]...)
		text, _, _ = strings.Cut(text, "?")
	case rule.Header:
		text, ok = value(all, c.String(), c.Name)
	case rule.Cookie, rule.Query:
		text, ok = value(all, c.String())
	default:
		text, ok = value(all, keysOf[c.Kind]...)
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
