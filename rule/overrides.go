package rule

import (
	"crypto/rand"
	"math"

	"github.com/edgelimit/edge/counter"
)

// Overrides are the keys of a rule that have limits of their own. They must not be modified once they are
// part of a Set.
type Overrides struct {
	base   *Rule
	secret counter.Secret         // not used for anything else, so that clients cannot choose colliding keys
	plans  map[counter.Key]uint16 // by key, an index into rules
	rules  []*Rule                // the rule with other limits
}

// NewOverrides gives r overrides with room for n keys.
func NewOverrides(r *Rule, n int) *Overrides {
	secret, err := counter.NewSecret(rand.Text())
	if err != nil {
		panic("rule: a random text is too short to be a secret")
	}
	r.overrides = &Overrides{base: r, secret: secret, plans: make(map[counter.Key]uint16, n)}
	return r.overrides
}

// AddPlan adds a plan with the given limits, whose periods must be those of the rule's limits, and returns
// its index. It returns false if there are too many plans.
func (o *Overrides) AddPlan(limits []Limit) (plan uint16, ok bool) {
	if len(o.rules) > math.MaxUint16 {
		return 0, false
	}
	r := *o.base
	r.base, r.Limits = o.base, limits
	o.rules = append(o.rules, &r)
	return uint16(len(o.rules) - 1), true
}

// Add gives a key from [Rule.Keys] a plan. It returns false if the key already has one.
func (o *Overrides) Add(key []byte, plan uint16) bool {
	tag := o.secret.Tag(key)
	if _, twice := o.plans[tag]; twice {
		return false
	}
	o.plans[tag] = plan
	return true
}

// Base returns the rule as its file defines it: r itself, unless r is a copy with the limits of a key.
func (r *Rule) Base() *Rule {
	if r.base != nil {
		return r.base
	}
	return r
}

// Override returns the rule that counts requests of r under a key from [Rule.Keys]: r, or r with the
// limits of the key in its overrides. Override does not allocate.
func (r *Rule) Override(key []byte) *Rule {
	if o := r.overrides; o != nil {
		if plan, found := o.plans[o.secret.Tag(key)]; found {
			return o.rules[plan]
		}
	}
	return r
}

// Overridden returns a copy of r for each set of limits in its overrides, and the number of keys in them.
func (r *Rule) Overridden() (plans []*Rule, keys int) {
	if r.overrides == nil {
		return nil, 0
	}
	return r.overrides.rules, len(r.overrides.plans)
}
