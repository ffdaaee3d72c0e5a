package admin

import (
	"cmp"
	"strings"
)

// An Explanation says how a client stands: what it is refused for, or how far it is from each threshold.
type Explanation struct {
	Keys []KeyState `json:"keys"`

	// Needs are the rules that count by more than was given.
	Needs []Need `json:"needs"`

	// Listed is the entry of the allow or deny list that decides before any rule, or nil.
	Listed *Listed `json:"listed,omitempty"`
}

// Listed is an entry of an access list.
type Listed struct {
	List    string `json:"list" enum:"allow,deny"`
	Network string `json:"network"`
}

// A KeyState is how one key stands.
type KeyState struct {
	Key    string `json:"key"`
	Rule   string `json:"rule,omitempty"` // empty if it was removed, or is not known here
	Action string `json:"action,omitempty"`

	// Mitigation is what this node knows of the key: a mitigation, or a lift. It may be nil.
	Mitigation *Mitigation `json:"mitigation,omitempty"`

	Limits []LimitState `json:"limits"`

	// Sheds is whether the client that was asked for is among those that a rule which sheds refuses.
	Sheds bool `json:"sheds,omitempty"`

	// Problem says why the counts may be incomplete.
	Problem string `json:"problem,omitempty"`
}

// A LimitState is how a key stands against one limit.
type LimitState struct {
	Threshold uint64  `json:"threshold"`
	Period    float64 `json:"period_s"`
	Prev      uint64  `json:"prev"` // in the previous window
	Cur       uint64  `json:"cur"`
	Estimate  float64 `json:"estimate"`
	Remaining uint64  `json:"remaining"` // how many more requests may come now
	Text      string  `json:"text"`
}

// A Need is a rule, and what it counts by.
type Need struct {
	Rule            string   `json:"rule"`
	Characteristics []string `json:"characteristics"`
}

// Target returns what to ask instead of ip alone, for ParseTarget: a list with … for each value to fill in,
// of the first alternative where there are several.
func (n Need) Target(ip string) string {
	target := "rule=" + n.Rule
	for _, c := range n.Characteristics {
		if alternatives, ok := strings.CutPrefix(c, "first:"); ok {
			c, _, _ = strings.Cut(alternatives, ",")
		}
		value := "…"
		if c == "ip" || strings.HasPrefix(c, "network:") {
			value = cmp.Or(ip, value)
		}
		target += "," + c + "=" + value
	}
	return target
}
