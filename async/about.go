package async

import (
	"net/netip"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// About describes the key of a record to operators, from the request that exceeded the limit: see [Loop.AboutKey].
// r may be nil.
func (c *Loop) About(r *rule.Rule, record *mitigation.Record) string {
	req := rule.Request{Addr: record.Client}
	if s := record.Sample; s != nil && c.o.LogClients {
		req = rule.Request{Addr: s.Client, Method: s.Method, Host: s.Host, Path: s.Path}
	}
	return c.AboutKey(r, record.Key, req)
}

// AboutKey describes the requests that r counts under key, from the known properties of one of them. If a value is not
// shown, the text ends in the key's fingerprint: the beginning of the key, which is a hash of the rule and all values.
func (c *Loop) AboutKey(r *rule.Rule, key counter.Key, known rule.Request) string {
	if r == nil {
		r = anyRule
	}
	known.Canonicalize(c.o.Client)
	text, complete := r.About(&known, func(material []byte) bool {
		if r == anyRule {
			return c.ClientKey(known.Client()) == key
		}
		return c.o.Secret.Tag(material) == key
	})
	if !complete {
		text += " (fingerprint " + key.String()[:8] + ")"
	}
	return text
}

// anyRule stands for the rule of [mitigation.AnyRule], and for an unknown rule.
var anyRule = &rule.Rule{Characteristics: []rule.Characteristic{{Kind: rule.IP}}}

// ClientKey returns the key under which operators refuse a client, regardless of rules. client is the first address of
// its network.
func (c *Loop) ClientKey(client netip.Addr) counter.Key {
	var buf [64]byte
	return c.o.Secret.Tag(client.AppendTo(append(buf[:0], "client "...)))
}
