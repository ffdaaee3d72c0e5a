package main

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// A coverage records which of the properties that rules use a log contains for at least one request.
type coverage struct {
	host, method, status, path, query, addr bool
	headers                                 map[string]bool // those that rules count by
}

func newCoverage(rules []*rule.Rule) *coverage {
	v := &coverage{headers: map[string]bool{}}
	for _, r := range rules {
		for _, c := range r.Characteristics {
			if name := headerOf(c); name != "" {
				v.headers[name] = false
			}
		}
	}
	return v
}

// headerOf returns the header that contains c, if any.
func headerOf(c rule.Characteristic) string {
	switch c.Kind {
	case rule.Header:
		return textproto.CanonicalMIMEHeaderKey(c.Name)
	case rule.Cookie:
		return "Cookie"
	}
	return ""
}

func (v *coverage) add(e *accesslog.Entry) {
	v.host, v.method, v.status = v.host || e.Host != "", v.method || e.Method != "", v.status || e.Status != 0
	v.addr = v.addr || e.Addr.IsValid()
	v.path, v.query = v.path || e.Path != "", v.query || e.Query != ""
	for _, f := range e.Header {
		if found, needed := v.headers[f.Name]; needed && !found {
			v.headers[f.Name] = true
		}
	}
}

// has reports whether the log contains c.
func (v *coverage) has(c rule.Characteristic) bool {
	switch c.Kind {
	case rule.Host:
		return v.host
	case rule.Method:
		return v.method
	case rule.Path:
		return v.path
	case rule.Query:
		return v.query
	case rule.Header, rule.Cookie:
		return v.headers[headerOf(c)]
	}
	return true
}

// excepts reports whether an exception of r is of a kind.
func excepts(r *rule.Rule, of func(rule.Match) bool) bool { return slices.ContainsFunc(r.Except, of) }

// check returns an error for each rule that would act differently in production, because the log
// lacks what the rule uses.
func (v *coverage) check(rules []*rule.Rule) error {
	var errs []error
	for _, r := range rules {
		for _, part := range []struct {
			needed, found bool
			what          string
		}{
			{excepts(r, func(m rule.Match) bool { return m.Hosts != nil }), v.host, "no host: exceptions by host do not apply"},
			{excepts(r, func(m rule.Match) bool { return m.Methods != nil }), v.method, "no method: exceptions by method do not apply"},
			{excepts(r, func(m rule.Match) bool { return m.Networks != nil }), v.addr, "no address: exceptions by network do not apply"},
			{r.Networks != nil, v.addr, "no address: it matches no request"},
			{r.Hosts != nil, v.host, "no host: it matches no request"},
			{r.Methods != nil, v.method, "no method: it matches no request"},
			{r.Statuses != nil, v.status, "no status: it counts nothing"},
			{r.CostHeader != "", false, fmt.Sprintf("no response headers: each request counts %d", r.CostOf(1))},
		} {
			if part.needed && !part.found {
				errs = append(errs, fmt.Errorf("rule %s: the log has %s", r.ID, part.what))
			}
		}
		for _, c := range r.Characteristics {
			switch {
			case v.has(c):
			case c.Skip:
				errs = append(errs, fmt.Errorf("rule %s: the log has no %s: it matches no request", r.ID, c))
			default:
				errs = append(errs, fmt.Errorf("rule %s: the log has no %s: all requests count as if they had the same one", r.ID, c))
			}
		}
	}
	return errors.Join(errs...)
}
