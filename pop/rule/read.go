package rule

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// A reader reads a rules file or a part of one. What many rules have in common is kept
// once.
type reader struct {
	decoder
	rules  []*Rule
	ids    []place // where the ID of each of rules is
	access []listed

	lists           map[string][]string
	characteristics map[string][]Characteristic
	limits          map[string][]Limit
	statuses        map[Statuses]*Statuses
	responses       map[Response]*Response
}

// A place is a line and a column of a file.
type place struct{ line, column int32 }

func newReader(file string, offset int) *reader {
	return &reader{
		decoder:         decoder{file: file, offset: offset},
		lists:           map[string][]string{},
		characteristics: map[string][]Characteristic{},
		limits:          map[string][]Limit{},
		statuses:        map[Statuses]*Statuses{},
		responses:       map[Response]*Response{},
	}
}

// place returns where n is.
func (r *reader) place(n *yaml.Node) place {
	return place{int32(n.Line + r.offset), int32(n.Column)}
}

// intern returns the value that stands for all equal ones.
func intern[K comparable, V any](known map[K]V, key K, v V) V {
	if same, ok := known[key]; ok {
		return same
	}
	known[key] = v
	return v
}

// document reads a whole file.
func (r *reader) document(text []byte) {
	root := r.parse(text)
	switch {
	case r.broken:
	case root == nil || root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
		r.failAt(0, 0, `write "rules: []" to have no rules`, "the file is empty")
	default:
		r.mapping(root, "the file", `begin it with the line "rules:"`, r.fileFields())
	}
}

// fileFields are the keys of a rules file.
func (r *reader) fileFields() []Field {
	return []Field{
		{"rules", "", r.ruleList},
		{"allow", "", func(n *yaml.Node) { r.accessList(n, "allow", Allowed) }},
		{"deny", "", func(n *yaml.Node) { r.accessList(n, "deny", Denied) }},
	}
}

func (r *reader) ruleList(n *yaml.Node) {
	nodes, _ := r.list(n, "rules", `begin every rule with "- id:"`)
	for _, each := range nodes {
		if r.full() {
			return
		}
		r.rule(each)
	}
}

// ruleFields are the keys of a rule; they read into rule and answer.
func (r *reader) ruleFields(rule *Rule, answer *draft) []Field {
	return []Field{
		{"id", "id: and a stable name, such as login", func(n *yaml.Node) {
			rule.ID = r.id(n)
			r.ids[len(r.ids)-1] = r.place(n)
		}},
		{"match", "", func(n *yaml.Node) {
			r.match(n, rule)
		}},
		{"count", "", func(n *yaml.Node) {
			r.mapping(n, "count", "write count: {statuses: [401, 403]}", r.countFields(rule))
		}},
		{"characteristics", "characteristics: [ip] to count each client apart", func(n *yaml.Node) {
			rule.Characteristics = r.characteristicList(n)
		}},
		{"limits", "limits: [{threshold: 50, period: 1m}]", func(n *yaml.Node) { rule.Limits = r.limitList(n) }},
		{"mitigation_timeout", "", func(n *yaml.Node) {
			rule.MitigationTimeout, _ = r.duration(n, "mitigation_timeout", 0)
		}},
		{"action", "", func(n *yaml.Node) {
			rule.Action = Action(max(r.choice(n, "action", actionNames[:]), 0))
		}},
		{"response", "", func(n *yaml.Node) { r.response(n, answer) }},
		{"on_failure", "", func(n *yaml.Node) {
			rule.OnFailure = OnFailure(max(r.choice(n, "on_failure", onFailureNames[:]), 0))
		}},
	}
}

func (r *reader) rule(n *yaml.Node) {
	rule := &Rule{File: r.file, Line: n.Line + r.offset, Action: Block}
	answer := new(draft)
	r.ids = append(r.ids, r.place(n))
	if !r.mapping(n, "this rule", "write {id: …, characteristics: …, limits: …}", r.ruleFields(rule, answer)) {
		r.ids = r.ids[:len(r.ids)-1]
		return
	}
	response := answer.complete(rule.Action)
	rule.Response = intern(r.responses, response, &response)
	r.rules = append(r.rules, rule)
}

func (r *reader) id(n *yaml.Node) string {
	id, ok := r.text(n, "id")
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
		r.fail(n, fmt.Sprintf("an ID has 1 to %d letters, digits, dots, hyphens and underscores, and begins with a letter or digit", MaxID), "id cannot be %s", quote(id))
	}
	return id
}

func (r *reader) countFields(rule *Rule) []Field {
	return []Field{{"statuses", "statuses: [401, 403], or leave count out", func(n *yaml.Node) {
		nodes, _ := r.sequence(n, "statuses", "write [401, 403]", "leave count out to count every request")
		var statuses Statuses
		for _, each := range nodes {
			status, ok := r.integer(each, "a status", MinStatus, MaxStatus)
			if ok && statuses.Has(int(status)) {
				r.fail(each, "leave one of them out", "the status %d is listed twice", status)
			} else if ok {
				statuses.add(int(status))
			}
		}
		rule.Statuses = intern(r.statuses, statuses, &statuses)
	}}}
}

func (r *reader) duration(n *yaml.Node, what string, low time.Duration) (time.Duration, bool) {
	const hint = "write whole days, hours, minutes or seconds, such as 10s, 1m, 1h30m or 7d"
	place := n
	n = resolve(n)
	if !isString(n) && !isInteger(n) {
		r.fail(place, hint, "%s is %s, not a duration", what, kindOf(n))
		return 0, false
	}
	d, err := ParseDuration(n.Value)
	_, digits := parseDigits(n.Value)
	switch {
	case digits && n.Value != "0":
		r.fail(place, fmt.Sprintf("write the unit: %ss, %sm, %sh or %sd", n.Value, n.Value, n.Value, n.Value), "%s has no unit", what)
	case err != nil:
		r.fail(place, hint, "%s cannot be %s", what, short(n.Value))
	case d < low || d > MaxPeriod:
		r.fail(place, fmt.Sprintf("it is from %s to %s", FormatDuration(low), FormatDuration(MaxPeriod)), "%s cannot be %s", what, n.Value)
	default:
		return d, true
	}
	return 0, false
}

// A draft is a response as a rules file writes it.
type draft struct {
	Response
	body *yaml.Node // nil if there is none
}

func (r *reader) response(n *yaml.Node, d *draft) {
	r.mapping(n, "response", "write response: {status: 429, body: too many requests}", r.responseFields(d))
	if d.Body != "" && bodyless(d.Status) {
		r.fail(d.body, "leave the body out, or take another status", "a response of status %d has no body", d.Status)
	}
}

func (r *reader) responseFields(d *draft) []Field {
	return []Field{
		{"status", "", func(n *yaml.Node) {
			status, _ := r.integer(n, "status", MinStatus, MaxStatus)
			d.Status = int(status)
		}},
		{"content_type", "", func(n *yaml.Node) {
			text, ok := r.text(n, "content_type")
			if ok && !isContentType(text) {
				r.fail(n, "write a type such as text/html or application/json", "content_type cannot be %s", quote(text))
			}
			d.ContentType = text
		}},
		{"body", "", func(n *yaml.Node) {
			text, ok := r.text(n, "body")
			if ok && len(text) > MaxBody {
				r.fail(n, fmt.Sprintf("at most %d are allowed", MaxBody), "body has %d bytes", len(text))
			}
			d.Body, d.body = text, n
		}},
	}
}

// bodyless reports whether HTTP knows no body for responses of a status.
func bodyless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// isContentType reports whether s is a media type, printable, with its parameters.
func isContentType(s string) bool {
	kind, _, _ := strings.Cut(s, ";")
	major, minor, ok := strings.Cut(strings.TrimRight(kind, " "), "/")
	if !ok || !isToken(major) || !isToken(minor) || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) {
		return false
	}
	_, _, err := mime.ParseMediaType(s)
	return err == nil
}

// complete returns the response with what a rules file need not say.
func (d *draft) complete(action Action) Response {
	r := d.Response
	switch {
	case r.Status != 0:
	case action == ShadowBan:
		r.Status = http.StatusOK
	default:
		r.Status = http.StatusTooManyRequests
	}
	if r.ContentType == "" {
		r.ContentType = "text/plain; charset=utf-8"
		if d.body == nil && r.Status == http.StatusTooManyRequests && action != ShadowBan {
			r.Body = "too many requests\n"
		}
	}
	return r
}
