package rule

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// Counting returns a clause about which requests r counts, and by what.
func (r *Rule) Counting() string {
	var b strings.Builder
	if r.Match.all() {
		b.WriteString("All requests")
	} else {
		b.WriteString(r.Match.spoken("Requests"))
	}
	if len(r.Except) > 0 {
		var list []string
		for i := range r.Except {
			list = append(list, r.Except[i].spoken("those"))
		}
		b.WriteString(", except " + strictyaml.Enumerate(list, "and") + ",")
	}
	if r.Statuses != nil {
		b.WriteString(" that the origin answers with " + r.Statuses.spoken())
	}
	b.WriteString(" are counted " + r.spokenCost() + "for each " + r.spokenKey())
	return b.String()
}

// Describe returns sentences about what r does.
func (r *Rule) Describe() string {
	var b strings.Builder
	b.WriteString(r.Counting() + "; once one has more than " + r.spokenLimits())
	if r.MinClients > 1 {
		fmt.Fprintf(&b, ", from at least %d clients", r.MinClients)
	}
	b.WriteString(", its further requests")
	if r.CountsAnswer() {
		b.WriteString(", whatever the origin would answer,")
	}
	b.WriteString(" " + r.consequence())
	if r.MitigationTimeout > 0 {
		b.WriteString(" for at least " + FormatDuration(r.MitigationTimeout) + " and")
	}
	b.WriteString(" until the estimate is back at ")
	if len(r.Limits) > 1 {
		b.WriteString("every threshold.")
	} else {
		b.WriteString("the threshold.")
	}
	if r.Overrides != "" {
		b.WriteString(" Keys in " + r.Overrides + " have thresholds of their own, or are exempt.")
	}
	if r.CountWhileMitigated {
		b.WriteString(" Requests of a mitigated key count as well, so that a client which does not slow down stays mitigated.")
	}
	if r.looksAtPath() {
		b.WriteString(" " + r.PathSyntax.Describe())
	}
	switch {
	case r.OnFailure == FailOpen:
		b.WriteString(" While the shard that counts it is unavailable, nothing new starts.")
	case r.FailsClosed():
		b.WriteString(" While the shard that counts it is unavailable, a request is answered with 503 Service Unavailable.")
	}
	return b.String()
}

// spoken describes the requests that m matches. The text begins with anyMethod unless m has methods.
func (m *Match) spoken(anyMethod string) string {
	text := anyMethod
	if len(m.Methods) > 0 {
		text = strictyaml.Enumerate(m.Methods, "and") + " requests"
	}
	if len(m.Hosts) > 0 {
		text += " to " + strictyaml.Enumerate(m.Hosts, "or")
	}
	if len(m.Paths) > 0 {
		text += " for " + strictyaml.Enumerate(m.Paths, "or")
	}
	if len(m.Networks) > 0 {
		var names []string
		for _, s := range m.Networks {
			names = append(names, s.Name)
		}
		text += " from " + strictyaml.Enumerate(names, "or")
	}
	return text
}

// spokenCost says how much a request counts. It is empty for the default.
func (r *Rule) spokenCost() string {
	switch cost := r.CostOf(1); {
	case r.CostHeader != "":
		return fmt.Sprintf("as often as the header %s of the origin's answer says (%d without it, at most %d) ", r.CostHeader, cost, MaxCost)
	case cost > 1:
		return fmt.Sprintf("%d times ", cost)
	}
	return ""
}

// countsAnyHost reports whether r counts by host without naming all hosts.
func (r *Rule) countsAnyHost() bool {
	named := len(r.Hosts) > 0 && !slices.ContainsFunc(r.Hosts, func(h string) bool { return strings.HasPrefix(h, "*.") })
	return !named && r.counts(Host)
}

// counts reports whether r has a characteristic of a kind.
func (r *Rule) counts(kind Kind) bool {
	for c := range r.leaves() {
		if c.Kind == kind {
			return true
		}
	}
	return false
}

// looksAtPath reports whether r matches, excepts or counts requests by path.
func (r *Rule) looksAtPath() bool {
	return len(r.Paths) > 0 || r.counts(Path) || slices.ContainsFunc(r.Except, func(e Match) bool { return len(e.Paths) > 0 })
}

// Describe returns a sentence about how paths are read.
func (s PathSyntax) Describe() string {
	how := map[PathReading]string{
		ReadAny:      "in each way that origins read them",
		ReadResolved: "as nginx, gunicorn, Go, Tomcat and IIS read them",
		ReadLiteral:  "as they are sent, like Express and Spring read them",
		ReadURL:      "as new URL(target, base) reads them",
	}[s.Reading]
	if ignored, _ := s.spokenDifferences(); len(ignored) > 0 {
		how += ", without regard to " + strictyaml.Enumerate(ignored, "and")
	}
	return "Paths are read " + how + "."
}

// spokenDifferences names the differences between paths that s ignores, and those that it does not.
func (s PathSyntax) spokenDifferences() (ignored, exact []string) {
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

// spokenKey names the characteristics.
func (r *Rule) spokenKey() string {
	var list []string
	for _, c := range r.Characteristics {
		list = append(list, c.spoken())
	}
	if len(list) == 1 {
		return list[0]
	}
	return "combination of " + strictyaml.Enumerate(list, "and")
}

func (r *Rule) spokenLimits() string {
	var list []string
	for _, l := range r.Limits {
		list = append(list, l.String())
	}
	return strictyaml.Enumerate(list, "or")
}

// consequence says what happens to the requests of a mitigated key.
func (r *Rule) consequence() string {
	switch r.Action {
	case Log:
		return "still pass, but are logged,"
	case Shed:
		return "are refused with " + r.Response.String() + " for as many of its clients as exceed the threshold,"
	case ShadowBan:
		return "get a prepared " + r.Response.String() + " and never reach the origin"
	case Close:
		return "find their connection closed (or, behind a trusted proxy, get " + r.Response.String() + ")"
	default:
		return "are refused with " + r.Response.String()
	}
}

// String returns the status with its name.
func (r *Response) String() string {
	return strings.TrimSpace(fmt.Sprint(r.Status, " ", http.StatusText(r.Status)))
}

// Notes returns sentences about what a reader of r, a rule of s, may not expect.
func (s *Set) Notes(r *Rule) (notes []string) {
	note := func(applies bool, format string, args ...any) {
		if applies {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	path := r.looksAtPath()
	_, exact := r.PathSyntax.spokenDifferences()
	note(len(r.Hosts) > 0, "Requests with another Host, an empty one or none escape this rule. If an origin serves them as well, start the nodes with --strict-hosts, or leave hosts out.")
	note(slices.ContainsFunc(r.Except, func(e Match) bool { return len(e.Hosts) > 0 }),
		"Requests with an excepted Host escape this rule: if an origin answers them like others, clients can send that Host.")
	note(r.countsAnyHost(), "A client that makes up a new Host for each request is never counted twice, if an origin serves it: start the nodes with --strict-hosts.")
	note(path && len(exact) > 0, "An origin that ignores %s of a path answers requests that escape this rule.", strictyaml.Enumerate(exact, "or"))
	note(path && r.PathSyntax.Reading != ReadAny, "An origin that reads paths differently from %v answers requests that escape this rule.", r.PathSyntax.Reading)
	note(!path && r.PathSyntax != (PathSyntax{}), "How paths are read has no effect: this rule looks at no path.")
	notes = append(notes, s.characteristicNotes(r)...)
	for _, l := range r.Limits {
		// If the longer period is a multiple of the shorter one, its estimate is never less, in whole
		// windows.
		i := slices.IndexFunc(r.Limits, func(longer Limit) bool {
			return l.plain() && longer.plain() && longer.Period > l.Period && longer.Period%l.Period == 0 && longer.Threshold <= l.Threshold
		})
		if i >= 0 {
			note(true, "The limit of %v has no effect: %v is reached first.", l, r.Limits[i])
		}
	}
	cost := r.CostOf(1)
	for _, l := range r.Limits {
		note(cost > l.Threshold, "A single request exceeds the limit of %v: it passes, and the next is refused.", l)
	}
	note(r.CostHeader != "", "The origin decides what a request counts, so worst cases are those of requests that count %d each. Requests that it does not answer do not count.", cost)
	note(r.Action == Log && *r.Response != *Response{}.complete(Log, false), "The response is never sent: this rule only logs.")
	note(r.Action == Log && r.OnFailure == FailClosed, "on_failure: closed has no effect: this rule only logs.")
	return notes
}

// characteristicNotes returns the notes about the characteristics of r.
func (s *Set) characteristicNotes(r *Rule) (notes []string) {
	for _, c := range r.Characteristics {
		switch {
		case c.Kind == Label:
			notes = append(notes, fmt.Sprintf("Requests from addresses that have no %s in %s escape this rule: they are neither counted nor refused.", c.spoken(), c.labels.File))
		case c.Skip:
			notes = append(notes, fmt.Sprintf("Requests without the %s escape this rule: they are neither counted nor refused.", c.spoken()))
		case c.Kind.chosen():
			notes = append(notes, fmt.Sprintf("Requests without the %s share one count, and are mitigated together.", c.spoken()))
		}
	}
	var chosen []string
	for c := range r.leaves() {
		if c.Kind.chosen() {
			chosen = append(chosen, c.spoken())
		}
	}
	switch {
	case len(chosen) > 0:
		return append(notes, fmt.Sprintf("A request with several values counts under each of them; requests with more than %d combinations share one count.", MaxKeys),
			fmt.Sprintf("A client that makes up a new %s for each request is never counted twice: %s.", strictyaml.Enumerate(chosen, "or"), s.spokenBound(r)))
	case r.counts(IP):
		return notes
	case r.Action == Shed:
		return append(notes, "Bystanders: if a key is at ten times its threshold, 9 of 10 of its clients are refused, including those that send few requests.")
	case r.Parent():
		return append(notes, "Bystanders: all clients of a mitigated network or label are refused, including those that send few requests. A single client can exceed the limit for all of them.")
	}
	return append(notes, "All clients share the counts of this rule: one of them can exceed a limit for all.")
}

// spokenBound names a rule that limits clients that send a new value for r with each request, or suggests
// one.
func (s *Set) spokenBound(r *Rule) string {
	bound := func(q *Rule) bool {
		return !slices.ContainsFunc(q.Characteristics, func(c Characteristic) bool { return c.Kind != IP && c.Kind != Network }) &&
			(q.Action != Log || r.Action == Log) && q.Action != Shed && q.MinClients < 2 && q.Overrides == "" && q.covers(r)
	}
	if i := slices.IndexFunc(s.rules, bound); i >= 0 {
		return fmt.Sprintf("rule %s, by %s, limits it", s.rules[i].ID, s.rules[i].spokenKey())
	}
	return fmt.Sprintf("no other rule limits it. Add one by ip alone with the same match, such as {id: %s-by-ip, characteristics: [ip], limits: …}", r.ID)
}

// covers reports whether r counts all requests that o counts. It may return false although r does.
func (r *Rule) covers(o *Rule) bool {
	in := func(list, of []string) bool {
		return len(list) == 0 || len(of) > 0 && !slices.ContainsFunc(of, func(text string) bool { return !slices.Contains(list, text) })
	}
	return len(r.Except) == 0 && len(r.Networks) == 0 && (r.PathSyntax == o.PathSyntax || len(r.Paths) == 0) &&
		in(r.Hosts, o.Hosts) && in(r.Methods, o.Methods) && in(r.Paths, o.Paths) &&
		(r.Statuses == nil || o.Statuses != nil && *r.Statuses == *o.Statuses) && r.CostHeader == ""
}

// spoken names the characteristic in a sentence.
func (c Characteristic) spoken() string {
	switch {
	case c.Kind == Network:
		return fmt.Sprintf("network (IPv4 /%d, IPv6 /%d)", c.ipv4, c.ipv6)
	case c.Kind == First:
		var list []string
		for _, alternative := range c.First {
			list = append(list, alternative.spoken())
		}
		return strings.Join(list, ", or else ")
	case !c.Kind.named():
		return c.spokenKind()
	}
	return c.spokenKind() + " " + c.Name
}

func (c Characteristic) spokenKind() string {
	switch c.Kind {
	case IP:
		return "client address"
	case Query:
		return "query parameter"
	default:
		return c.Kind.String()
	}
}

// spoken lists the statuses, and three or more consecutive ones as a range.
func (s *Statuses) spoken() string {
	var words []string
	list := s.List()
	for i := 0; i < len(list); {
		last := i
		for last+1 < len(list) && list[last+1] == list[last]+1 {
			last++
		}
		if last < i+2 {
			last = i
			words = append(words, fmt.Sprint(list[i]))
		} else {
			words = append(words, fmt.Sprintf("%d to %d", list[i], list[last]))
		}
		i = last + 1
	}
	return strictyaml.Enumerate(words, "or")
}
