package describe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edge/rule"
)

// matchNotes returns the notes about the paths and conditions of r's match and exceptions.
func matchNotes(r *rule.Rule) (notes []string) {
	note := func(applies bool, format string, args ...any) {
		if applies {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	why := never(r)
	note(why != "", "This rule never applies: %s.", why)
	note(len(r.Conditions) > 0, "Clients choose their headers, cookies and parameters: requests that lack what match names, or have what it wants absent, escape this rule.")
	note(slices.ContainsFunc(r.Except, func(e rule.Match) bool { return len(e.Conditions) > 0 }),
		"Clients choose their headers, cookies and parameters: those that send what an exception names escape this rule.")
	for _, e := range r.Except {
		for _, path := range e.Paths {
			segment, ok := strings.CutPrefix(path, "*")
			note(ok && segment != "", "The exception %s also exempts /login/x%s, which some origins answer as /login: name a directory, such as /static/*.",
				path, strings.ReplaceAll(segment, "*", ""))
		}
	}
	for _, c := range r.AllConditions() {
		for _, p := range c.Patterns {
			text := p.String()
			note(text != "" && text[0] != '~' && (text[0] == '^' || strings.HasSuffix(text, "$") || strings.Contains(text, ".*")),
				"The pattern %s of the %s is text in which only * is special: begin it with ~ if it is an expression.", text, characteristic(c.Characteristic))
		}
	}
	return notes
}

// never says why r applies to no request, or returns an empty string.
func never(r *rule.Rule) string {
	for i := range r.Except {
		if e := &r.Except[i]; exempts(e, &r.Match) {
			return "all of its requests are excepted, as " + match(e, "those")
		}
	}
	for i := range r.Conditions {
		c := &r.Conditions[i]
		if !c.Absent {
			continue
		}
		for _, o := range r.Conditions {
			if c.Characteristic.String() == "header:cookie" && o.Characteristic.Kind == rule.Cookie && !o.Absent {
				return "no request " + condition(c) + " is " + condition(&o)
			}
		}
		if slices.ContainsFunc(r.Characteristics, func(o rule.Characteristic) bool { return o.Skip && o.Same(c.Characteristic) }) {
			return "it skips requests " + condition(c) + ", and matches no others"
		}
	}
	return ""
}

// exempts reports whether e, an exception, has all requests that m has. It may return false even if it does.
func exempts(e, m *rule.Match) bool {
	certain := func(c rule.Condition) bool { // several values may match a pattern of m, and not all of those in e
		return len(c.Patterns) == 0 && slices.ContainsFunc(m.Conditions, func(o rule.Condition) bool { return o.String() == c.String() })
	}
	everywhere := slices.ContainsFunc(e.Paths, func(path string) bool { return path == "*" || path == "/*" })
	return in(e.Hosts, m.Hosts) && in(e.Methods, m.Methods) && (everywhere || in(e.Paths, m.Paths)) && in(e.Networks, m.Networks) &&
		!slices.ContainsFunc(e.Conditions, func(c rule.Condition) bool { return !certain(c) })
}
