package describe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
)

// Notes returns sentences about effects of r, a rule of s, that its author may not expect.
func Notes(s *rule.Set, r *rule.Rule) []string {
	var notes prose.Phrases
	path := looksAtPath(r)
	_, exact := differences(r.PathSyntax)
	notes.AddIf(len(r.Hosts) > 0, "Requests with another Host, an empty one or none escape this rule. If an origin "+
		"serves them as well, start the nodes with --strict-hosts, or leave hosts out.")
	notes.AddIf(slices.ContainsFunc(r.Except, func(e rule.Match) bool { return len(e.Hosts) > 0 }),
		"Requests with an excepted Host escape this rule: if an origin answers them like others, clients can send that Host.")
	matches := func(method string) bool { return slices.Contains(r.Methods, method) }
	notes.AddIf(matches("GET") && !matches("HEAD"),
		"HEAD requests escape this rule, although origins usually do the same work for them as for GET: add HEAD.")
	notes.AddIf(len(r.Methods) > 0 && !matches("POST"),
		"If the origin obeys X-HTTP-Method-Override or a parameter _method, a POST request that names another method there "+
			"escapes this rule: turn that off in the origin, or add POST.")
	if r.CountsBy(rule.Host) {
		wildcards := slices.DeleteFunc(slices.Clone(r.Hosts), func(h string) bool { return !strings.HasPrefix(h, "*.") })
		notes.AddIf(len(r.Hosts) == 0, "A client that makes up a new Host for each request is never counted twice, if an "+
			"origin serves it: start the nodes with --strict-hosts, and name hosts without *., or add a rule by ip.")
		notes.AddIf(len(wildcards) > 0, "A client that makes up a new Host like %s for each request is never counted twice, "+
			"if an origin serves it, even with --strict-hosts: %s. Listing the hosts without *. prevents that, too.",
			prose.Enumerate(wildcards, "or"), bound(s, r))
	}
	notes.AddIf(path && len(exact) > 0, "An origin that ignores %s of a path answers requests that escape this rule.",
		prose.Enumerate(exact, "or"))
	notes.AddIf(path && r.PathSyntax.Reading != rule.ReadAny,
		"An origin that reads paths differently from %v answers requests that escape this rule.", r.PathSyntax.Reading)
	notes = append(notes, matchNotes(r)...)
	notes = append(notes, characteristicNotes(s, r)...)
	cost, unreported, unanswered := r.CostOf(1), "nothing", "Requests that it does not answer do not count."
	if r.Reserve > 0 {
		unreported, unanswered = "only the reserve", fmt.Sprintf("Requests that it does not answer count %d.", r.Reserve)
	}
	for _, l := range r.Limits {
		if l.Threshold < 20 && cost == 1 && !r.CountsAnswer() && r.MitigationTimeout > 0 && r.Action.Refuses() {
			every, over := steady(l)
			notes.AddIf(over, "A client that sends one request every %v stays within %v, but its estimate exceeds that for a "+
				"moment, so it is refused for %v: add round: down to the limit.",
				every, l, rule.FormatDuration(r.MitigationTimeout))
		}
		notes.AddIf(cost > l.Threshold, "A single request exceeds the limit of %v: it passes, and the next is refused.", l)
	}
	notes.AddIf(r.CountsAnswer(), "If other proxies ask the nodes (check_listen, spop_listen), they must report the "+
		"origin's responses; without reports this rule counts %s.", unreported)
	notes.AddIf(r.CostSource() != "", "The origin decides how much a request counts, so worst cases assume that each "+
		"request counts %d. %s", cost, unanswered)
	notes.AddIf(r.CostJSON != "", "A response that the client does not read to its end, or that is compressed or neither "+
		"JSON nor an event stream, counts %d: set cost to what such a request costs at most.", cost)
	return notes
}

// matchNotes returns the notes about the match and the exceptions of r.
func matchNotes(r *rule.Rule) (notes prose.Phrases) {
	why := never(r)
	notes.AddIf(why != "", "This rule never applies: %s.", why)
	conditions := r.AllConditions()
	notes.AddIf(len(conditions) > 0, "Clients choose their headers, cookies and parameters: those that do not send what "+
		"match names, or send what except names, escape this rule.")
	expressions := false
	for _, c := range conditions {
		for _, p := range c.Patterns {
			text := p.String()
			expressions = expressions || strings.HasPrefix(text, "~")
			notes.AddIf(strings.HasPrefix(text, "^") || text != "" && text[0] != '~' &&
				(strings.HasSuffix(text, "$") || strings.Contains(text, ".*")),
				"The pattern %s of the %s is text in which only * is special: begin it with ~ if it is an expression.", text,
				characteristic(c.Characteristic))
		}
	}
	notes.AddIf(expressions, "Expressions (~) take about 60 ns of CPU time for each byte, patterns with * 1 ns. If those "+
		"of all rules read more than %d bytes of long values in a request, match applies, and an exception does not.",
		rule.MaxSearched)
	for _, e := range r.Except {
		for _, path := range e.Paths {
			notes.AddIf(len(path) > 1 && path[0] == '*',
				"The exception %s also exempts paths such as /login/x%s, which some origins answer as /login: "+
					"name a directory, such as /static/*.", path, strings.ReplaceAll(path, "*", ""))
		}
	}
	return notes
}

// never says why r applies to no request, or returns an empty string.
func never(r *rule.Rule) string {
	for _, e := range r.Except {
		if includes(&e, &r.Match) {
			return "all of its requests are excepted (" + match(e, "those") + ")"
		}
		if opposite(r.Except, &e) {
			return "all of its requests are excepted (" + match(e, "those") + ", and all others)"
		}
	}
	for _, c := range r.Conditions {
		skips := func(o rule.Characteristic) bool { return c.Absent && o.Skip && o.Same(c.Characteristic) }
		if slices.ContainsFunc(r.Characteristics, skips) {
			return "it skips requests " + condition(c) + ", and matches no others"
		}
		for _, o := range r.Conditions {
			if c.Absent && c.Characteristic.String() == "header:cookie" && o.Characteristic.Kind == rule.Cookie && !o.Absent {
				return "no request " + condition(c) + " comes " + condition(o)
			}
		}
	}
	return ""
}

// includes reports whether m, which may be an exception, matches all requests that o matches. It may return false even
// if m does. Both read paths in the same way.
func includes(m, o *rule.Match) bool {
	uncertain := func(c rule.Condition) bool { // one value must match a pattern of o, but all one of an exception
		return len(c.Patterns) > 0 || !slices.ContainsFunc(o.Conditions, func(other rule.Condition) bool {
			return other.Characteristic.Same(c.Characteristic) && other.Absent == c.Absent
		})
	}
	everywhere := slices.Contains(m.Paths, "*") || slices.Contains(m.Paths, "/*")
	return all(m.Hosts, o.Hosts, hasHost) && in(m.Methods, o.Methods) && (everywhere || all(m.Paths, o.Paths, hasPath)) &&
		in(m.Networks, o.Networks) && !slices.ContainsFunc(m.Conditions, uncertain)
}

// opposite reports whether e only tests that a value is present, and another exception that it is absent, or the
// reverse.
func opposite(exceptions []rule.Match, e *rule.Match) bool {
	alone := func(m *rule.Match) bool {
		only := rule.Match{Conditions: m.Conditions}
		return len(m.Conditions) == 1 && len(m.Conditions[0].Patterns) == 0 && includes(m, &only)
	}
	return alone(e) && slices.ContainsFunc(exceptions, func(o rule.Match) bool {
		return alone(&o) && o.Conditions[0].Characteristic.Same(e.Conditions[0].Characteristic) &&
			o.Conditions[0].Absent != e.Conditions[0].Absent
	})
}

// hasHost reports whether pattern matches every host that host does.
func hasHost(pattern, host string) bool {
	end, wild := strings.CutPrefix(pattern, "*")
	return pattern == host || wild && strings.HasSuffix(host, end)
}

// hasPath reports whether pattern matches every path that path does. It may return false even if it does.
func hasPath(pattern, path string) bool {
	start, wild := strings.CutSuffix(pattern, "*")
	return pattern == path || wild && !strings.Contains(start, "*") && start != "" && strings.HasPrefix(path, start)
}

// characteristicNotes returns the notes about the characteristics of r.
func characteristicNotes(s *rule.Set, r *rule.Rule) (notes prose.Phrases) {
	for _, c := range r.Characteristics {
		switch {
		case c.Kind == rule.Label:
			notes.Add("Requests from addresses that have no %s in %s escape this rule: they are neither counted nor refused.",
				characteristic(c), c.Labels.File)
		case c.Skip:
			notes.Add("Requests without the %s escape this rule: they are neither counted nor refused.", characteristic(c))
		case c.Kind.Chosen():
			notes.Add("Requests without the %s share one count, and are mitigated together.", characteristic(c))
		}
	}
	var chosen []string
	for c := range r.Leaves() {
		if c.Kind.Chosen() {
			chosen = append(chosen, characteristic(*c))
		}
	}
	switch {
	case len(chosen) > 0:
		notes.Add("A request with several values counts under each of them; requests with more than %d combinations share "+
			"one count.", rule.MaxKeys)
		notes.Add("A client that makes up a new %s for each request is never counted twice: %s.",
			prose.Enumerate(chosen, "or"), bound(s, r))
	case r.CountsBy(rule.IP):
	case r.Action == rule.Shed:
		notes.Add("Bystanders: if a key is at ten times its threshold, nine in ten of its clients are refused, including " +
			"those that send few requests.")
	case r.Parent():
		notes.Add("Bystanders: all clients of a mitigated network or label are refused, including those that send few " +
			"requests. A single client can exceed the limit for all of them.")
	default:
		notes.Add("All clients share the counts of this rule: one of them can exceed a limit for all.")
	}
	return notes
}

// bound names a rule that limits clients that send a new value for r with each request, or suggests
// one.
func bound(s *rule.Set, r *rule.Rule) string {
	limits := func(q *rule.Rule) bool {
		return !slices.ContainsFunc(q.Characteristics, func(c rule.Characteristic) bool {
			return c.Kind != rule.IP && c.Kind != rule.Network
		}) && (q.Action.Refuses() || !r.Action.Refuses()) && q.Action != rule.Shed && q.MinClients < 2 &&
			q.Overrides == "" && covers(q, r)
	}
	if i := slices.IndexFunc(s.Rules(), limits); i >= 0 {
		return fmt.Sprintf("rule %s, by %s, limits it", s.Rules()[i].ID, key(s.Rules()[i]))
	}
	return fmt.Sprintf("no other rule limits it. Add one by ip alone with the same match, such as {id: %s-by-ip, "+
		"characteristics: [ip], limits: …}", r.ID)
}

// in reports whether list, a list of a match, has all of other. An empty list has everything.
func in[T comparable](list, other []T) bool {
	return all(list, other, func(a, b T) bool { return a == b })
}

// all is in for lists of patterns: has reports whether pattern a matches everything that b matches.
func all[T any](list, other []T, has func(a, b T) bool) bool {
	return len(list) == 0 || len(other) > 0 && !slices.ContainsFunc(other, func(b T) bool {
		return !slices.ContainsFunc(list, func(a T) bool { return has(a, b) })
	})
}

// covers reports whether r counts all requests that o counts. It may return false even if r does.
func covers(r, o *rule.Rule) bool {
	return includes(&r.Match, &o.Match) && len(r.Except) == 0 && (r.PathSyntax == o.PathSyntax || len(r.Paths) == 0) &&
		(r.Statuses == nil || o.Statuses != nil && *r.Statuses == *o.Statuses) && r.CostSource() == ""
}
