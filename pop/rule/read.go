package rule

import (
	"fmt"
	"net/textproto"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A reader reads a rules file or a part of one. Rules share equal values, to save memory.
type reader struct {
	strictyaml.Document
	contents

	// Of the current rule.
	paths    []pathList
	counting *yaml.Node // count_while_mitigated

	lists           map[string][]string
	characteristics map[string][]Characteristic
	limits          map[string][]Limit
	statuses        map[Statuses]*Statuses
	responses       map[Response]*Response
}

// A place is a line and a column of a file.
type place struct {
	file         string
	line, column int32
}

func newReader(file string, text []byte, offset int) *reader {
	return &reader{
		Document:        strictyaml.Document{File: file, Bytes: text, Offset: offset, Parents: parents},
		lists:           map[string][]string{},
		characteristics: map[string][]Characteristic{},
		limits:          map[string][]Limit{},
		statuses:        map[Statuses]*Statuses{},
		responses:       map[Response]*Response{},
	}
}

// place returns where n is.
func (r *reader) place(n *yaml.Node) place {
	return place{r.File, int32(n.Line + r.Offset), int32(n.Column)}
}

// intern returns the known value of key or, if there is none, makes v known.
func intern[K comparable, V any](known map[K]V, key K, v V) V {
	if same, ok := known[key]; ok {
		return same
	}
	known[key] = v
	return v
}

// document reads a whole rules file.
func (r *reader) document() {
	r.Read(`begin it with the line "rules:"`, `write "rules: []" to have no rules`, r.topFields())
}

// parents maps keys that are easily written a level too high or too low to the keys they belong under.
var parents = map[string]string{
	"hosts": "match", "methods": "match", "paths": "match",
	"path_case": "match", "path_trailing_slash": "match", "path_parameters": "match", "path_reading": "match",
	"statuses": "count", "cost": "count", "cost_header": "count",
	"threshold": "limits", "period": "limits",
	"status": "response", "content_type": "response", "body": "response",
}

// topFields are the keys of a rules file.
func (r *reader) topFields() []strictyaml.Field {
	return []strictyaml.Field{
		{Name: "rules", Read: r.ruleList},
		{Name: "allow", Read: func(n *yaml.Node) { r.accessList(n, "allow", Allowed) }},
		{Name: "deny", Read: func(n *yaml.Node) { r.accessList(n, "deny", Denied) }},
		{Name: "networks", Read: r.networkSets},
		{Name: "labels", Read: r.labelSets},
	}
}

func (r *reader) ruleList(n *yaml.Node) {
	for _, each := range r.List(n, "rules", `begin every rule with "- id:"`) {
		if r.Full() {
			return
		}
		r.rule(each)
	}
}

// ruleFields are the keys of a rule. They read into rule and answer.
func (r *reader) ruleFields(rule *Rule, answer *draft) []strictyaml.Field {
	return []strictyaml.Field{
		{Name: "id", Need: "id: and a stable name, such as login", Read: func(n *yaml.Node) {
			rule.ID = r.identifier(n, "id")
			r.ids[len(r.ids)-1] = r.place(n)
		}},
		{Name: "match", Read: func(n *yaml.Node) { r.match(n, rule) }},
		{Name: "except", Read: func(n *yaml.Node) { r.except(n, rule) }},
		{Name: "count", Read: func(n *yaml.Node) { r.count(n, rule) }},
		{Name: "characteristics", Need: "characteristics: [ip] to count each client separately", Read: func(n *yaml.Node) {
			rule.Characteristics = r.characteristicList(n)
		}},
		{Name: "limits", Need: "limits: [{threshold: 50, period: 1m}]", Read: func(n *yaml.Node) { rule.Limits = r.limitList(n) }},
		{Name: "overrides", Read: func(n *yaml.Node) { r.overridesFile(n, rule) }},
		{Name: "mitigation_timeout", Read: func(n *yaml.Node) {
			rule.MitigationTimeout, _ = r.duration(n, "mitigation_timeout", 0)
		}},
		{Name: "count_while_mitigated", Read: func(n *yaml.Node) {
			rule.CountWhileMitigated = r.Boolean(n, "count_while_mitigated", "write count_while_mitigated: true to count requests of mitigated keys")
			r.counting = n
		}},
		strictyaml.Whole(&r.Document, "min_clients", "", &rule.MinClients, 1, MaxClients),
		strictyaml.Word(&r.Document, "action", &rule.Action, actionNames[:]),
		{Name: "response", Read: func(n *yaml.Node) { r.response(n, answer) }},
		strictyaml.Word(&r.Document, "on_failure", &rule.OnFailure, onFailureNames[:]),
		{Name: "enabled", Read: func(n *yaml.Node) {
			rule.Disabled = !r.Boolean(n, "enabled", "write enabled: false to set the rule aside")
		}},
	}
}

func (r *reader) rule(n *yaml.Node) {
	rule := &Rule{File: r.File, Line: n.Line + r.Offset, Action: Block}
	answer := new(draft)
	r.ids = append(r.ids, r.place(n))
	if !r.Mapping(n, "this rule", "write {id: …, characteristics: …, limits: …}", r.ruleFields(rule, answer)) {
		r.ids = r.ids[:len(r.ids)-1]
		return
	}
	for _, p := range r.paths {
		r.normalize(p, rule.PathSyntax)
	}
	r.paths = r.paths[:0]
	if rule.CountWhileMitigated && rule.CountsAnswer() {
		r.Fail(r.counting, "remove one of them: the origin does not answer refused requests", "a rule that counts by %s cannot have count_while_mitigated",
			map[bool]string{true: "statuses", false: "cost_header"}[rule.Statuses != nil])
	}
	r.checkShared(n, rule)
	if rule.Action == ShadowBan && answer.Filled {
		r.Fail(answer.body, "leave the placeholders out, or write action: block", "a shadow_ban must not show, and its body has {id} or {retry_after}")
	}
	response := answer.complete(rule.Action)
	rule.Response = intern(r.responses, response, &response)
	r.rules = append(r.rules, rule)
}

// identifier reads an ID, or another name of the same form.
func (r *reader) identifier(n *yaml.Node, what string) string {
	id, ok := r.Text(n, what)
	if !ok {
		return ""
	}
	for i := range len(id) {
		c := id[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || i > 0 && strings.IndexByte("-_.", c) >= 0) {
			ok = false
		}
	}
	if !ok || id == "" || len(id) > MaxID {
		r.Fail(n, fmt.Sprintf("an ID has 1 to %d letters, digits, dots, hyphens and underscores, and begins with a letter or digit", MaxID), "%s cannot be %s", what, strictyaml.Quote(id))
	}
	return id
}

// count reads which requests a rule counts, and how much each counts.
func (r *reader) count(n *yaml.Node, rule *Rule) {
	const hint = "write count: {statuses: [401, 403]}, or count: {cost: 10}"
	if r.Mapping(n, "count", hint, r.countFields(rule)) && len(strictyaml.Resolve(n).Content) == 0 {
		r.Fail(n, "leave count out to count every request once", "count is empty")
	}
}

func (r *reader) countFields(rule *Rule) []strictyaml.Field {
	return []strictyaml.Field{strictyaml.Whole(&r.Document, "cost", "", &rule.Cost, 1, MaxCost), {Name: "cost_header", Read: func(n *yaml.Node) {
		name, ok := r.Text(n, "cost_header")
		if ok && !httpguts.ValidHeaderFieldName(name) {
			r.Fail(n, "write the name of a header that the origin sends, such as X-Cost", "cost_header cannot be %s", strictyaml.Quote(name))
		}
		rule.CostHeader = textproto.CanonicalMIMEHeaderKey(name)
	}}, {Name: "statuses", Read: func(n *yaml.Node) {
		var statuses Statuses
		for _, each := range r.Sequence(n, "statuses", "write [401, 403]", "leave count out to count every request") {
			first, number := statusClass(strictyaml.Resolve(each)), 100
			if first == 0 {
				status, _ := r.Integer(each, "a status", MinStatus, MaxStatus)
				first, number = int(status), 1
			}
			for status := first; status > 0 && status < first+number; status++ {
				if statuses.Has(status) {
					r.Fail(each, "remove one of them", "the status %d is listed twice", status)
					break
				}
				statuses.add(status)
			}
		}
		rule.Statuses = intern(r.statuses, statuses, &statuses)
	}}}
}

// statusClass returns the first status of the class n, such as 4xx, or 0 if n is not a class.
func statusClass(n *yaml.Node) (first int) {
	if !strictyaml.IsString(n) || len(n.Value) != 3 || n.Value[1:] != "xx" || n.Value[0] < '0'+MinStatus/100 || n.Value[0] > '0'+MaxStatus/100 {
		return 0
	}
	return int(n.Value[0]-'0') * 100
}

func (r *reader) duration(n *yaml.Node, what string, low time.Duration) (time.Duration, bool) {
	const hint = "write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d"
	place := n
	n = strictyaml.Resolve(n)
	if !strictyaml.IsString(n) && !strictyaml.IsInteger(n) {
		r.Fail(place, hint, "%s is %s, not a duration", what, strictyaml.KindOf(n))
		return 0, false
	}
	d, err := ParseDuration(n.Value)
	_, digits := strictyaml.ParseDigits(n.Value)
	switch {
	case digits && n.Value != "0":
		r.Fail(place, fmt.Sprintf("write the unit: %ss, %sm, %sh or %sd", n.Value, n.Value, n.Value, n.Value), "%s has no unit", what)
	case err != nil:
		r.Fail(place, hint, "%s cannot be %s", what, strictyaml.Short(n.Value))
	case d < low || d > MaxPeriod:
		r.Fail(place, fmt.Sprintf("it is from %s to %s", FormatDuration(low), FormatDuration(MaxPeriod)), "%s cannot be %s", what, n.Value)
	default:
		return d, true
	}
	return 0, false
}
