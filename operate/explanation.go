package operate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgelimit/edge/rule"
)

// An Explanation describes the state of a client: why it is refused, or how far it is from each threshold.
type Explanation struct {
	Keys []KeyState `json:"keys"`

	// Needs are the rules that need the values of further characteristics.
	Needs []Need `json:"needs"`

	// Listed is the entry of the allow or deny list that decides before any rule, or nil.
	Listed *Listed `json:"listed,omitempty"`
}

// Listed is an entry of an access list.
type Listed struct {
	List    string `json:"list" enum:"allow,deny"`
	Network string `json:"network"`
}

// A KeyState is the state of one key.
type KeyState struct {
	Key    string `json:"key"`
	Rule   string `json:"rule,omitempty"` // empty if it was removed, or is not known here
	Action string `json:"action,omitempty"`
	About  string `json:"about" doc:"what is counted under the key: an address, a network, a header and the key's fingerprint"`

	// Mitigation is the mitigation or lift that this node knows for the key. It may be nil.
	Mitigation *Mitigation `json:"mitigation,omitempty"`

	Limits []LimitState `json:"limits"`

	// Sheds reports whether the client asked about is among those that a shedding rule refuses.
	Sheds bool `json:"sheds,omitempty"`

	// Spared says why the rule applies to no request of the client asked about. It is empty if the rule may apply.
	Spared string `json:"spared,omitempty"`

	// Unavailable reports whether requests are refused because the rule has on_failure: closed, and the key's shard is
	// unavailable.
	Unavailable bool `json:"unavailable,omitempty"`

	// Problem says why the counts may be incomplete.
	Problem string `json:"problem,omitempty"`
}

// Refused reports whether requests of the key are refused now, or some of them if the rule sheds.
func (k KeyState) Refused() bool {
	return k.Unavailable || k.Spared == "" && k.Mitigation != nil && k.Mitigation.State == inForce
}

// DryRun reports whether requests of the key would be refused now if the rule's action were not log.
func (k KeyState) DryRun() bool { return k.Mitigation != nil && k.Mitigation.State == logged }

// A LimitState is the state of a key for one limit.
type LimitState struct {
	Threshold uint64  `json:"threshold"`
	Period    float64 `json:"period_s"`
	Prev      uint64  `json:"prev"` // in the previous window
	Cur       uint64  `json:"cur"`
	Estimate  float64 `json:"estimate"`
	Remaining uint64  `json:"remaining"` // number of further requests allowed now
	Text      string  `json:"text"`
}

// A Need is a rule and the characteristics that it counts by.
type Need struct {
	Rule            string   `json:"rule"`
	Characteristics []string `json:"characteristics"`
}

// Target returns a target for ParseTarget with the values that are known, and … for each value to fill in. It uses the first
// of several alternatives.
func (n Need) Target(known map[string]string) string {
	target := "rule=" + n.Rule
	for _, c := range n.Characteristics {
		if alternatives, ok := strings.CutPrefix(c, "first:"); ok {
			c, _, _ = strings.Cut(alternatives, ",")
		}
		value := known[c]
		if value == "" && strings.HasPrefix(c, "network:") {
			value = cmp.Or(known["ip"], known["network"])
		}
		target += "," + c + "=" + cmp.Or(value, "…")
	}
	return target
}

// keyDigits is the number of hexadecimal digits of a key.
const keyDigits = 32

// ParseTarget parses a target into the values for [Operator.Explain], [Operator.Lift] and [Operator.Add]. It is an address, a
// network, a key, a list of NAME=VALUE, or else the ID of a refusal. A comma separates values only before a known NAME=.
func ParseTarget(text string) (map[string]string, error) {
	text = strings.TrimSpace(text)
	if _, err := netip.ParseAddr(text); err == nil {
		return map[string]string{"ip": text}, nil
	}
	if _, err := netip.ParsePrefix(text); err == nil {
		return map[string]string{"network": text}, nil
	}
	if !strings.Contains(text, "=") {
		if len(text) == keyDigits {
			return map[string]string{"key": strings.ToLower(text)}, nil
		}
		return map[string]string{"id": text}, nil
	}
	values, last := map[string]string{}, ""
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		kind, _, _ := strings.Cut(name, ":")
		switch known := ok && slices.Contains(valueKinds, kind); {
		case last == "" && (!ok || name == ""):
			return nil, Invalid(fmt.Sprintf("%q is not NAME=VALUE, such as ip=203.0.113.7", part))
		case last != "" && !known:
			values[last] += "," + part
			continue
		}
		if _, twice := values[name]; twice {
			return nil, Invalid(name + " is given twice")
		}
		values[name], last = value, name
	}
	return values, nil
}

// valueKinds are the names for which a target may give a value, without what follows a colon.
var valueKinds = append([]string{"rule", "key", "id"}, rule.KindNames()[rule.IP:]...)
