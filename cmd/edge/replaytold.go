package main

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// A told records which of the properties that rules use a log contains for at least one request.
type told struct {
	host, method, status, path, query, addr bool
	headers                                 map[string]bool // those that rules count by
}

func newTold(rules []*rule.Rule) *told {
	t := &told{headers: map[string]bool{}}
	for _, r := range rules {
		for _, c := range r.Characteristics {
			if name := headerOf(c); name != "" {
				t.headers[name] = false
			}
		}
	}
	return t
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

func (t *told) add(e *accesslog.Entry) {
	t.host, t.method, t.status = t.host || e.Host != "", t.method || e.Method != "", t.status || e.Status != 0
	t.addr = t.addr || e.Addr.IsValid()
	t.path, t.query = t.path || e.Path != "", t.query || e.Query != ""
	for _, f := range e.Header {
		if told, asked := t.headers[f.Name]; asked && !told {
			t.headers[f.Name] = true
		}
	}
}

// of reports whether the log contains c.
func (t *told) of(c rule.Characteristic) bool {
	switch c.Kind {
	case rule.Host:
		return t.host
	case rule.Method:
		return t.method
	case rule.Path:
		return t.path
	case rule.Query:
		return t.query
	case rule.Header, rule.Cookie:
		return t.headers[headerOf(c)]
	}
	return true
}

// excepts reports whether an exception of r is of a kind.
func excepts(r *rule.Rule, of func(rule.Match) bool) bool { return slices.ContainsFunc(r.Except, of) }

// check returns an error for each rule that would act differently in production, because the log
// lacks what the rule uses.
func (t *told) check(rules []*rule.Rule) error {
	var errs []error
	for _, r := range rules {
		for _, part := range []struct {
			asked, told bool
			what        string
		}{
			{excepts(r, func(m rule.Match) bool { return m.Hosts != nil }), t.host, "no host: exceptions by host do not apply"},
			{excepts(r, func(m rule.Match) bool { return m.Methods != nil }), t.method, "no method: exceptions by method do not apply"},
			{excepts(r, func(m rule.Match) bool { return m.Networks != nil }), t.addr, "no address: exceptions by network do not apply"},
			{r.Networks != nil, t.addr, "no address: it matches no request"},
			{r.Hosts != nil, t.host, "no host: it matches no request"},
			{r.Methods != nil, t.method, "no method: it matches no request"},
			{r.Statuses != nil, t.status, "no status: the rule counts nothing"},
			{r.CostHeader != "", false, fmt.Sprintf("no headers of answers: a request counts %d", r.CostOf(1))},
		} {
			if part.asked && !part.told {
				errs = append(errs, fmt.Errorf("rule %s: the log has %s", r.ID, part.what))
			}
		}
		for _, c := range r.Characteristics {
			switch {
			case t.of(c):
			case c.Skip:
				errs = append(errs, fmt.Errorf("rule %s: the log has no %s: it matches no request", r.ID, c))
			default:
				errs = append(errs, fmt.Errorf("rule %s: the log has no %s: all requests count as if they had the same one", r.ID, c))
			}
		}
	}
	return errors.Join(errs...)
}
