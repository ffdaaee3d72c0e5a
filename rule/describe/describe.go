// Package describe puts rules into words, for edge check, the operator's page and reports.
package describe

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
)

// Counting returns a clause about which requests r counts, and by what.
func Counting(r *rule.Rule) string {
	requests := "All requests"
	if !r.Match.Empty() {
		requests = match(r.Match, "Requests")
	}
	excepted := prose.Texts(r.Except, func(m rule.Match) string { return match(m, "those") })
	text := prose.Phrases{requests}
	text.AddIf(len(r.Except) > 0, ", except %s,", prose.Enumerate(excepted, "and"))
	if r.Statuses != nil {
		text.Add(" that the origin answers with %s", statuses(r.Statuses))
	}
	text.Add(" are counted %sfor each %s", cost(r), key(r))
	text.AddIf(r.CountRefused, ", even if other rules refuse them")
	return strings.Join(text, "")
}

var fieldNames = regexp.MustCompile(`(?m)^[\w-]+`) // of a response

// Rule returns sentences about what r does.
func Rule(r *rule.Rule) string {
	limits := prose.Enumerate(prose.Texts(r.Limits, rule.Limit.String), "or")
	text := prose.Phrases{Counting(r) + "; once one has more than " + limits}
	text.AddIf(r.MinClients > 1, ", from at least %d clients", r.MinClients)
	text.Add(", its further requests")
	text.AddIf(r.CountsAnswer(), ", whatever the origin would answer,")
	text.Add(" %s", r.Action.Does(status(r.Response)))
	text.AddIf(r.MitigationTimeout > 0, " for at least %s and", rule.FormatDuration(r.MitigationTimeout))
	thresholds := "the threshold"
	if len(r.Limits) > 1 {
		thresholds = "every threshold"
	}
	text.Add(" until the estimate is back at %s.", thresholds)
	text.AddIf(r.Overrides != "", " Keys in %s have thresholds of their own.", r.Overrides)
	text.AddIf(r.CountWhileMitigated,
		" Requests of a mitigated key count as well, so a client that does not slow down stays mitigated.")
	text.AddIf(looksAtPath(r), " %s", paths(r.PathSyntax))
	names, longest := fieldNames.FindAllString(r.Response.Fields+r.Response.OriginFields, -1), r.Response.MaxRetryAfter
	text.AddIf(len(names) > 0 && r.Action.Refuses(), " The response has the headers %s.", prose.Enumerate(names, "and"))
	text.AddIf(longest > 0 && r.Action.Refuses(), " Clients are told to wait at most %s.", rule.FormatDuration(longest))
	text.AddIf(r.HidesQuota, " Clients are not told their quota.")
	text.AddIf(r.OnFailure == rule.FailOpen,
		" While the shard that counts a key is unavailable, no mitigation of it starts.")
	text.AddIf(r.FailsClosed(),
		" While the shard that counts a request is unavailable, the request is answered with 503 Service Unavailable.")
	return strings.Join(text, "")
}

// match describes the requests that m matches. The text begins with anyMethod unless m has methods.
func match(m rule.Match, anyMethod string) string {
	text := prose.Phrases{anyMethod}
	if len(m.Methods) > 0 {
		text[0] = prose.Enumerate(m.Methods, "and") + " requests"
	}
	networks := prose.Texts(m.Networks, func(s *rule.NetworkSet) string { return s.Name })
	text.AddIf(len(m.Hosts) > 0, " to %s", prose.Enumerate(m.Hosts, "or"))
	text.AddIf(len(m.Paths) > 0, " for %s", prose.Enumerate(m.Paths, "or"))
	text.AddIf(len(networks) > 0, " from %s", prose.Enumerate(networks, "or"))
	text.AddIf(len(m.Conditions) > 0, " %s", prose.Enumerate(prose.Texts(m.Conditions, condition), "and"))
	return strings.Join(text, "")
}

// condition describes what requests have that meet c.
func condition(c rule.Condition) string {
	text := "with the " + characteristic(c.Characteristic)
	if c.Absent {
		text = "without the " + characteristic(c.Characteristic)
	} else if len(c.Patterns) > 0 {
		text += " like " + prose.Enumerate(prose.Texts(c.Patterns, rule.Pattern.String), "or")
	}
	return text
}

// cost says how much a request counts. It is empty for the default.
func cost(r *rule.Rule) string {
	cost, source := r.CostOf(1), "the header "+r.CostHeader
	if r.CostJSON != "" {
		source = "the number " + r.CostJSON + " in the JSON"
	}
	least := ""
	if r.Reserve > 0 {
		least = fmt.Sprintf("at least %d, which count on arrival, ", r.Reserve)
	}
	switch {
	case r.CostSource() != "":
		return fmt.Sprintf("as many times as %s of the origin's response says (%d without it, %sat most %d) ", source, cost,
			least, rule.MaxCost)
	case cost > 1:
		return fmt.Sprintf("%d times ", cost)
	}
	return ""
}

// looksAtPath reports whether r matches, excepts or counts requests by path.
func looksAtPath(r *rule.Rule) bool {
	return r.CountsBy(rule.Path) ||
		slices.ContainsFunc(r.AllMatches(), func(m rule.Match) bool { return len(m.Paths) > 0 })
}

// paths returns a sentence about how paths are read.
func paths(s rule.PathSyntax) string {
	how := map[rule.PathReading]string{
		rule.ReadAny:      "in every way that origins read them",
		rule.ReadResolved: "as nginx, gunicorn, Go, Tomcat and IIS read them",
		rule.ReadLiteral:  "as they are sent, as Express and Spring read them",
		rule.ReadURL:      "as new URL(target, base) reads them",
	}[s.Reading]
	if ignored, _ := differences(s); len(ignored) > 0 {
		how += ", without regard to " + prose.Enumerate(ignored, "and")
	}
	return "Paths are read " + how + "."
}

// differences names the differences between paths that s ignores, and those that it does not.
func differences(s rule.PathSyntax) (ignored, exact []string) {
	for _, d := range []struct {
		name  string
		exact bool
	}{{"letter case", s.ExactCase}, {"a trailing slash", s.ExactSlash}, {";parameters", s.ExactParameters}} {
		if d.exact {
			exact = append(exact, d.name)
		} else {
			ignored = append(ignored, d.name)
		}
	}
	return ignored, exact
}

func key(r *rule.Rule) string {
	list := prose.Texts(r.Characteristics, characteristic)
	if len(list) == 1 {
		return list[0]
	}
	return "combination of " + prose.Enumerate(list, "and")
}

// status returns the status of a response with its name.
func status(r *rule.Response) string {
	return strings.TrimSpace(fmt.Sprint(r.Status, " ", http.StatusText(r.Status)))
}

// characteristic names c in a sentence.
func characteristic(c rule.Characteristic) string {
	switch c.Kind {
	case rule.Network:
		return "network (IPv4 /" + strings.Replace(c.Name, "/", ", IPv6 /", 1) + ")"
	case rule.First:
		return strings.Join(prose.Texts(c.First, characteristic), ", or else ")
	}
	if c.Kind.Named() {
		return c.Kind.Words() + " " + c.Name
	}
	return c.Kind.Words()
}

// statuses lists the statuses, and three or more consecutive ones as a range.
func statuses(s *rule.Statuses) string {
	var words []string
	for status := rule.MinStatus; status <= rule.MaxStatus; status++ {
		last := status
		for s.Has(last + 1) {
			last++
		}
		switch {
		case !s.Has(status):
		case last < status+2:
			words = append(words, fmt.Sprint(status))
		default:
			words = append(words, fmt.Sprintf("%d to %d", status, last))
			status = last
		}
	}
	return prose.Enumerate(words, "or")
}

// Limit says how l is counted. It is empty for the default: whole windows, with the previous one
// weighted.
func Limit(l rule.Limit) string {
	if l.SubWindows <= 1 && l.Estimate == counter.Weighted {
		return ""
	}
	if l.Estimate == counter.Fixed {
		return fmt.Sprintf("counted in fixed windows of %s", rule.FormatDuration(l.Period))
	}
	how := "counted in whole windows"
	if n := l.SubWindows; n > 1 {
		layout, part := l.Counted().Layout, (l.Period / time.Duration(n)).Round(time.Millisecond)
		how = fmt.Sprintf("counted in %d sub-windows of %v (%v bits, for thresholds up to %d)", n, part, layout,
			layout.MaxThreshold())
	}
	switch l.Estimate {
	case counter.WholeOldest:
		how += ", the oldest one whole"
	case counter.WeightedRounded:
		how += ", the estimate rounded down"
	}
	return how
}

// steady returns the time between requests of a client that steadily sends 95% of what l allows, and whether its
// estimate ever exceeds the threshold.
func steady(l rule.Limit) (every time.Duration, over bool) {
	every = (l.Period * 20 / time.Duration(19*l.Threshold)).Round(100 * time.Millisecond)
	counted := l.Counted()
	var w counter.Windows[int64, uint64]
	for at := time.Duration(0); at < 40*l.Period && every > 0 && !over; at += every {
		index, elapsed := counter.WindowAt(at.Microseconds(), counted.Period)
		w.Roll(index)
		w.Cur = counted.Count(w.Cur, 1, elapsed)
		over = counted.Over(w.Prev, w.Cur, elapsed)
	}
	return every, over
}
