package file

import (
	"cmp"
	"fmt"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// A reader reads a rules file into a loader. Rules share equal values, to save memory.
type reader struct {
	strictyaml.Document
	loader *loader
	names  *yaml.Node     // in place of the first rule, if the file is of another kind
	known  map[string]any // values that rules share, by key
	key    []byte
}

// A place is a line and a column of a file.
type place struct {
	file         string
	line, column int32
}

// reader returns a reader of the text of a file.
func (l *loader) reader(file string, text []byte) *reader {
	return &reader{Document: *strictyaml.New(file, text), loader: l, known: map[string]any{}}
}

func (r *reader) place(n *yaml.Node) place {
	return place{r.File, int32(n.Line), int32(n.Column)}
}

// intern returns v, or an equal value that r has read before.
func intern[V any](r *reader, v V) V {
	r.key = fmt.Appendf(r.key[:0], "%#v", v)
	if same, ok := r.known[string(r.key)]; ok {
		return same.(V)
	}
	r.known[string(r.key)] = v
	return v
}

// fields returns the keys of a rules file.
func (r *reader) fields() []strictyaml.Field {
	return []strictyaml.Field{
		{Name: "rules", Read: r.ruleList},
		{Name: "allow", Read: func(n *yaml.Node) { r.accessList(n, "allow", rule.Allowed) }},
		{Name: "deny", Read: func(n *yaml.Node) { r.accessList(n, "deny", rule.Denied) }},
		{Name: "networks", Read: func(n *yaml.Node) { r.networkSets(n, false) }},
		{Name: "labels", Read: func(n *yaml.Node) { r.networkSets(n, true) }},
	}
}

func (r *reader) ruleList(n *yaml.Node) {
	first := n
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
		first = n.Content[0]
	}
	if strictyaml.IsString(first) {
		r.names = first
		return
	}
	for _, element := range r.List(n, "rules", `begin every rule with "- id:"`) {
		r.rule(element)
	}
}

const writeRule = "write {id: …, characteristics: …, limits: …}"

func (r *reader) rule(n *yaml.Node) {
	to := &rule.Rule{File: r.File, Line: n.Line, Action: rule.Block}
	l, enabled := r.loader, true
	answer := "" // the key by which the rule counts answers of the origin, if any
	counting := func(name, requests string, on *bool) strictyaml.Field {
		return strictyaml.Field{Name: name, Read: func(n *yaml.Node) {
			*on = r.Boolean(n, name, "write "+name+": true to count requests "+requests)
			if *on && answer != "" {
				r.Fail(n, unanswered, "a rule that counts by %s cannot have %s", answer, name)
			}
		}}
	}
	if !r.Mapping(n, "this rule", writeRule, []strictyaml.Field{
		{Name: "id", Need: "id: and a stable name, such as login", Read: func(n *yaml.Node) {
			to.ID = r.identifier(n, "id")
			if first := l.ids[to.ID]; first != nil {
				r.Fail(n, "IDs must be unique across all files", "there is already a rule %s at %s:%d", to.ID, first.File,
					first.Line)
			} else if to.ID != "" {
				l.ids[to.ID] = to
			}
		}},
		{Name: "match", Read: func(n *yaml.Node) { r.match(n, to) }},
		{Name: "except", Read: func(n *yaml.Node) { r.except(n, to) }},
		{Name: "count", Read: func(n *yaml.Node) { answer = r.count(n, to) }},
		{Name: "characteristics", Need: "characteristics: [ip] to count each client separately", Read: func(n *yaml.Node) {
			to.Characteristics = r.characteristicList(n)
		}},
		{Name: "limits", Need: "limits: [{threshold: 50, period: 1m}]",
			Read: func(n *yaml.Node) { to.Limits = r.limitList(n) }},
		{Name: "overrides", Read: func(n *yaml.Node) {
			if to.Overrides = r.fileName(n, "overrides", "plans.csv"); to.Overrides != "" {
				l.plans = append(l.plans, overridesUse{to, r.place(n)})
			}
		}},
		{Name: "mitigation_timeout", Read: func(n *yaml.Node) {
			to.MitigationTimeout, _ = r.duration(n, "mitigation_timeout", 0)
		}},
		counting("count_while_mitigated", "of mitigated keys", &to.CountWhileMitigated),
		counting("count_refused", "that other rules refuse", &to.CountRefused),
		strictyaml.Whole(&r.Document, "min_clients", "", &to.MinClients, 1, rule.MaxClients),
		strictyaml.Word(&r.Document, "action", &to.Action, rule.ActionNames()),
		{Name: "response", Read: func(n *yaml.Node) { r.response(n, to) }},
		{Name: "ratelimit_headers", Read: func(n *yaml.Node) {
			to.HidesQuota = !r.Boolean(n, "ratelimit_headers",
				"write ratelimit_headers: false to keep the rule's quota out of RateLimit and X-RateLimit")
		}},
		strictyaml.Word(&r.Document, "on_failure", &to.OnFailure, rule.OnFailureNames()),
		{Name: "enabled", Read: func(n *yaml.Node) {
			enabled = r.Boolean(n, "enabled", "write enabled: false to disable the rule")
		}},
	}) {
		return
	}
	r.checkShared(n, to)
	to.Response = intern(r, cmp.Or(to.Response, rule.DefaultResponse(to.Action)))
	if enabled {
		l.rules = append(l.rules, to)
	} else {
		l.disabled = append(l.disabled, to)
	}
}

const unanswered = "remove one of them: the origin does not answer refused requests"

// checkShared refuses settings that contradict the number of clients that share a key.
func (r *reader) checkShared(n *yaml.Node, to *rule.Rule) {
	if len(to.Characteristics) == 0 { // already an error
		return
	}
	shed := to.Action == rule.Shed
	if (shed || to.MinClients > 0) && to.Width() == 0 {
		subject := "min_clients is"
		if shed {
			subject = "action: shed is"
		}
		r.Fail(n, "count by network:24/48, by a label or by host",
			"%s for keys that many clients share, but this rule counts individual clients", subject)
	}
	if shed && to.CountsAnswer() {
		r.Fail(n, unanswered, "a rule that counts by the origin's response cannot have action: shed")
	}
	if shed && slices.ContainsFunc(to.Limits, func(l rule.Limit) bool { return l.SubWindows > 1 }) {
		r.Fail(n, "leave sub_windows out: their counts stop too close to the threshold",
			"a rule with sub_windows cannot have action: shed")
	}
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*$`)

// identifier reads an ID, or another name of the same form.
func (r *reader) identifier(n *yaml.Node, subject string) string {
	hint := fmt.Sprintf("an ID has 1 to %d letters, digits, dots, hyphens and underscores, and begins with a letter "+
		"or digit", rule.MaxID)
	return r.text(n, subject, hint, func(id string) bool { return validID.MatchString(id) && len(id) <= rule.MaxID })
}

// text reads a string that must be valid.
func (r *reader) text(n *yaml.Node, subject, hint string, valid func(string) bool) string {
	text, ok := r.Text(n, subject)
	if ok && !valid(text) {
		r.Fail(n, hint, "%s cannot be %s", subject, prose.Quote(text))
	}
	return text
}

// jsonPath matches the names of nested members of a JSON object.
var jsonPath = regexp.MustCompile(`^[\w-]+(\.[\w-]+)*$`)

// count reads which requests a rule counts, and how much each counts. It returns the key by which the rule counts
// answers of the origin, or "".
func (r *reader) count(n *yaml.Node, to *rule.Rule) (answer string) {
	var reserve *yaml.Node
	if r.Mapping(n, "count", "write count: {statuses: [401, 403]}, or count: {cost: 10}", []strictyaml.Field{
		strictyaml.Whole(&r.Document, "cost", "", &to.Cost, 1, rule.MaxCost),
		{Name: "cost_header", Read: func(n *yaml.Node) {
			to.CostHeader = textproto.CanonicalMIMEHeaderKey(r.text(n, "cost_header",
				"write the name of a header that the origin sends, such as X-Cost", httpguts.ValidHeaderFieldName))
		}},
		{Name: "cost_json", Read: func(n *yaml.Node) {
			to.CostJSON = r.text(n, "cost_json",
				"write the names of members of a JSON object, with dots between them, such as usage.total_tokens",
				func(path string) bool { return jsonPath.MatchString(path) && len(path) <= rule.MaxCostJSON })
			if to.CostHeader != "" && to.CostJSON != "" {
				r.Fail(n, "remove one of them", "a rule cannot have both cost_header and cost_json")
			}
		}},
		{Name: "reserve", Read: func(n *yaml.Node) {
			to.Reserve, _ = r.Integer(n, "reserve", 1, rule.MaxCost)
			reserve = n
		}},
		{Name: "statuses", Read: func(n *yaml.Node) { to.Statuses = r.statuses(n) }},
	}) && len(n.Content) == 0 {
		r.Fail(n, "leave count out to count every request once", "count is empty")
	}
	to.Cost = max(to.Cost, to.Reserve)
	switch {
	case to.Reserve > 0 && to.CostSource() == "":
		r.Fail(reserve, "add cost_header or cost_json, or write cost instead of reserve",
			"a reserve is a part of the cost that the response has")
	case to.Reserve > 0 && to.Statuses != nil:
		r.Fail(reserve, "remove one of them: the status is not known yet when the reserve counts",
			"a rule that counts by statuses cannot have a reserve")
	}
	switch {
	case to.Statuses != nil:
		return "statuses"
	case to.CostHeader != "":
		return "cost_header"
	case to.CostJSON != "":
		return "cost_json"
	}
	return ""
}

// statuses reads a list of statuses and status classes.
func (r *reader) statuses(n *yaml.Node) *rule.Statuses {
	s, classes := new(rule.Statuses), []string{"2xx", "3xx", "4xx", "5xx"}
	for _, element := range r.Sequence(n, "statuses", "write [401, 403]", "leave count out to count every request") {
		first, number := rule.MinStatus+100*slices.Index(classes, element.Value), 100
		if first < rule.MinStatus || !strictyaml.IsString(element) {
			status, _ := r.Integer(element, "a status", rule.MinStatus, rule.MaxStatus)
			first, number = int(status), 1
		}
		for status := first; status > 0 && status < first+number; status++ {
			if s.Has(status) {
				r.Fail(element, "remove one of them", "the status %d is listed twice", status)
				break
			}
			s.Add(status)
		}
	}
	return intern(r, s)
}

func (r *reader) duration(n *yaml.Node, key string, low time.Duration) (time.Duration, bool) {
	const hint = "write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d"
	if !strictyaml.IsString(n) && !strictyaml.IsInteger(n) {
		r.Fail(n, hint, "%s is %s, not a duration", key, strictyaml.KindOf(n))
		return 0, false
	}
	d, err := prose.ParseDuration(n.Value, time.Second)
	switch days := d / (24 * time.Hour); {
	case err != nil && strings.Contains(strings.ToLower(n.Value), "mo"):
		r.Fail(n, "the longest "+key+" is 7d: write that, and a quarter of a month's threshold", "%s cannot be %s", key,
			strictyaml.Short(n.Value))
	case err != nil:
		r.Fail(n, hint, "%s cannot be %s", key, strictyaml.Short(n.Value))
	case days > 7 && key == "period":
		r.Fail(n, fmt.Sprintf("must be from 1s to 7d: 7/%d of the threshold in 7d comes nearest", days),
			"period cannot be %s", n.Value)
	case d < low || d > rule.MaxPeriod:
		r.Fail(n, fmt.Sprintf("must be from %s to %s", rule.FormatDuration(low), rule.FormatDuration(rule.MaxPeriod)),
			"%s cannot be %s", key, n.Value)
	default:
		return d, true
	}
	return 0, false
}
