package rule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
)

// RequestOf returns a request in which the only characteristic of r has the given value, so that its key is
// that of HTTP requests with the value. It returns an error if r has several characteristics, or if no
// request that r counts can have the value.
func (r *Rule) RequestOf(value string) (Request, error) {
	if len(r.Characteristics) != 1 {
		names := prose.Texts(r.Characteristics, Characteristic.String)
		return Request{}, fmt.Errorf("rule %s counts by %s, not by a single value", r.ID, strings.Join(names, ", "))
	}
	req, err := r.RequestFrom(func(*Characteristic) (string, bool) { return value, true })
	req.Check()
	if err == nil && req.Malformed {
		err = fmt.Errorf("rule %s counts by %s, and no request has %q", r.ID, &r.Characteristics[0], value)
	}
	return req, err
}

// RequestFrom returns a request in which each characteristic of r has the value that valueOf returns, so
// that its key is that of HTTP requests with these values. It returns an error for a missing value, unless
// r skips requests without it, and for a value that no request counted by r can have. [Request.Check] finds values that
// no request can have.
func (r *Rule) RequestFrom(valueOf func(*Characteristic) (value string, ok bool)) (Request, error) {
	req := Request{Method: "GET", Path: "/", partial: true}
	for i := range r.Characteristics {
		c := &r.Characteristics[i]
		value, ok := valueOf(c)
		for rest := c.First; !ok && len(rest) > 0; rest = rest[1:] {
			c = &rest[0]
			value, ok = valueOf(c)
		}
		if c.Kind == First {
			c = &c.First[0]
		}
		if !ok && c.Skip {
			continue
		}
		if !ok {
			return Request{}, fmt.Errorf("missing value of %s, by which rule %s counts", c, r.ID)
		}
		if err := req.setValue(c, value); err != nil {
			return Request{}, fmt.Errorf("rule %s counts by %s, and %w", r.ID, c, err)
		}
	}
	if slices.ContainsFunc(r.Characteristics, func(c Characteristic) bool { return c.Kind == Path }) {
		canonical := req
		canonical.Canonicalize(ClientPrefix{})
		if !canonical.Malformed && !r.matchPath(&canonical) { // no form of it would be counted
			return Request{}, fmt.Errorf("rule %s counts by path, and does not match %q", r.ID, req.Path)
		}
	}
	return req, nil
}
