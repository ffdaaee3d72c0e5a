package rule

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Describe says in a sentence what r means.
func (r *Rule) Describe() string {
	var b strings.Builder
	if len(r.Methods) > 0 {
		b.WriteString(enumerate(r.Methods, "and") + " requests")
	} else if len(r.Hosts) == 0 && len(r.Paths) == 0 {
		b.WriteString("All requests")
	} else {
		b.WriteString("Requests")
	}
	if len(r.Hosts) > 0 {
		b.WriteString(" to " + enumerate(r.Hosts, "or"))
	}
	if len(r.Paths) > 0 {
		b.WriteString(" for " + enumerate(r.Paths, "or"))
	}
	if r.Statuses != nil {
		b.WriteString(" that the origin answers with " + r.Statuses.spoken())
	}
	b.WriteString(" are counted for each " + r.spokenKey() + "; once one has more than " + r.spokenLimits() + ", its further requests")
	if r.Statuses != nil {
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

// countsAnyHost reports whether r counts hosts apart that it does not name.
func (r *Rule) countsAnyHost() bool {
	named := len(r.Hosts) > 0 && !slices.ContainsFunc(r.Hosts, func(h string) bool { return strings.HasPrefix(h, "*.") })
	return !named && r.counts(Host)
}

// counts reports whether r has a characteristic of a kind.
func (r *Rule) counts(kind Kind) bool {
	return slices.ContainsFunc(r.Characteristics, func(c Characteristic) bool { return c.Kind == kind })
}

// looksAtPath reports whether r matches or counts requests by their path.
func (r *Rule) looksAtPath() bool {
	return len(r.Paths) > 0 || r.counts(Path)
}

// Describe says in a sentence how paths are read.
func (s PathSyntax) Describe() string {
	how := map[PathReading]string{
		ReadAny:      "in each way that origins read them",
		ReadResolved: "as nginx, gunicorn, Go, Tomcat and IIS read them",
		ReadLiteral:  "as they are sent, like Express and Spring read them",
		ReadURL:      "as new URL(target, base) reads them",
	}[s.Reading]
	if ignored, _ := s.spokenDifferences(); len(ignored) > 0 {
		how += ", without regard to " + enumerate(ignored, "and")
	}
	return "Paths are read " + how + "."
}

// spokenDifferences names what origins may ignore of a path: what s ignores, and what not.
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

// spokenKey names what the counts are told apart by.
func (r *Rule) spokenKey() string {
	var list []string
	for _, c := range r.Characteristics {
		list = append(list, c.spoken())
	}
	if len(list) == 1 {
		return list[0]
	}
	return "combination of " + enumerate(list, "and")
}

func (r *Rule) spokenLimits() string {
	var list []string
	for _, l := range r.Limits {
		list = append(list, l.String())
	}
	return enumerate(list, "or")
}

// consequence says what happens to the requests of a mitigated key.
func (r *Rule) consequence() string {
	switch r.Action {
	case Log:
		return "still pass, but are logged,"
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

// Notes returns what a reader of the rule may not expect of it, a sentence each.
func (r *Rule) Notes() []string {
	var notes, made []string
	if len(r.Hosts) > 0 {
		notes = append(notes, "Requests with another Host, an empty one or none escape this rule. If an origin serves them as well, start the nodes with --strict-hosts, or leave hosts out.")
	}
	if r.countsAnyHost() {
		notes = append(notes, "A client that makes up a new Host for each request is never counted twice, if an origin serves it: start the nodes with --strict-hosts.")
	}
	if _, exact := r.PathSyntax.spokenDifferences(); r.looksAtPath() && len(exact) > 0 {
		notes = append(notes, fmt.Sprintf("An origin that ignores %s of a path answers requests that escape this rule.", enumerate(exact, "or")))
	}
	if r.PathSyntax.Reading != ReadAny && r.looksAtPath() {
		notes = append(notes, fmt.Sprintf("An origin that reads paths in another way than %v answers requests that escape this rule.", r.PathSyntax.Reading))
	}
	if r.PathSyntax != (PathSyntax{}) && !r.looksAtPath() {
		notes = append(notes, "How paths are read has no effect: this rule looks at no path.")
	}
	for _, c := range r.Characteristics {
		switch {
		case c.Skip:
			notes = append(notes, fmt.Sprintf("Requests without the %s escape this rule: they are neither counted nor refused.", c.spoken()))
		case c.Kind.named():
			notes = append(notes, fmt.Sprintf("Requests without the %s share one count, and are mitigated together.", c.spoken()))
		}
		if c.Kind.named() {
			made = append(made, c.spoken())
		}
	}
	switch {
	case len(made) > 0:
		notes = append(notes, fmt.Sprintf("A request with several values counts under each of them; requests with more than %d combinations share one count.", MaxKeys))
		notes = append(notes, fmt.Sprintf("A client that makes up a new %s for each request is never counted twice: a second rule, by ip alone, would stop it.", enumerate(made, "or")))
	case !r.counts(IP):
		notes = append(notes, "All clients share the counts of this rule: one of them can exceed a limit for all.")
	}
	for _, l := range r.Limits {
		// Where the longer period is a multiple of the shorter, its estimate is
		// never less: that of whole windows.
		i := slices.IndexFunc(r.Limits, func(longer Limit) bool {
			return l.plain() && longer.plain() && longer.Period > l.Period && longer.Period%l.Period == 0 && longer.Threshold <= l.Threshold
		})
		if i >= 0 {
			notes = append(notes, fmt.Sprintf("The limit of %v has no effect: %v is reached first.", l, r.Limits[i]))
		}
	}
	if r.Action == Log && *r.Response != new(draft).complete(Log) {
		notes = append(notes, "The response is never sent: this rule only logs.")
	}
	if r.Action == Log && r.OnFailure == FailClosed {
		notes = append(notes, "on_failure: closed has no effect: this rule only logs.")
	}
	return notes
}

// spoken names the characteristic in a sentence.
func (c Characteristic) spoken() string {
	if !c.Kind.named() {
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

// spoken lists the statuses, three and more in a row as a range.
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
	return enumerate(words, "or")
}
