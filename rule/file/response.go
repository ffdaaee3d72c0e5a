package file

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// response reads the response of a rule whose action is known.
func (r *reader) response(n *yaml.Node, owner *rule.Rule) {
	usual, to := rule.DefaultResponse(owner.Action), new(rule.Response)
	owner.Response = to
	var body, headers *yaml.Node
	before := len(r.Errs)
	r.Mapping(n, "response", "write response: {status: 429, body: too many requests}", []strictyaml.Field{
		strictyaml.Whole(&r.Document, "status", "", &to.Status, rule.MinStatus, rule.MaxStatus),
		{Name: "content_type", Read: func(n *yaml.Node) {
			to.ContentType = r.text(n, "content_type", "write a type such as text/html or application/json", isContentType)
		}},
		{Name: "body", Read: func(n *yaml.Node) {
			text, ok := r.Text(n, "body")
			if ok && len(text) > rule.MaxBody {
				r.Fail(n, fmt.Sprintf("at most %d are allowed", rule.MaxBody), "body has %d bytes", len(text))
			}
			if text != "" && (to.Status == http.StatusNoContent || to.Status == http.StatusNotModified) {
				r.Fail(n, "leave the body out, or use another status", "a response of status %d has no body", to.Status)
			}
			body, to.Body, to.Filled = n, text, len(r.placeholders(n, "body", text, owner.Action)) > 0
		}},
		{Name: "headers", Read: func(n *yaml.Node) { headers = n; r.headers(n, owner) }},
		{Name: "origins", Read: func(n *yaml.Node) {
			to.Origins = r.originList(n)
			if to.OriginFields == "" && len(to.Origins) > 0 && len(r.Errs) == before {
				r.Fail(n, `add Access-Control-Allow-Origin: "{origin}" to headers, or leave origins out`,
					"the response has origins, but no header with {origin}")
			}
		}},
		{Name: "max_retry_after", Read: func(n *yaml.Node) {
			to.MaxRetryAfter, _ = r.duration(n, "max_retry_after", time.Second)
		}},
	})
	if to.OriginFields != "" && len(to.Origins) == 0 && len(r.Errs) == before {
		r.Fail(headers, "add origins: [https://app.example.com] to the response",
			"headers have {origin}, but there are no origins")
	}
	to.Status = cmp.Or(to.Status, usual.Status)
	if body == nil && to.ContentType == "" && to.Status == usual.Status {
		to.Body = usual.Body
	}
	to.ContentType = cmp.Or(to.ContentType, usual.ContentType)
}

// headers reads further header fields of the response of a rule.
func (r *reader) headers(n *yaml.Node, owner *rule.Rule) {
	var names []string
	size := 0
	for _, pair := range r.Pairs(n, "headers", `write headers: {Access-Control-Allow-Origin: "*"}`) {
		name, isName := r.Text(pair[0], "the name of a header")
		value, isText := r.Text(pair[1], name)
		lower := strings.ToLower(name)
		switch {
		case !isName || !isText:
		case !fieldName.MatchString(name):
			r.Fail(pair[0], "use letters, digits and hyphens, starting with a letter", "the name of a header cannot be %s",
				prose.Quote(name))
		case rule.NodeSets(name):
			hints := map[string]string{"content-type": "write content_type", "retry-after": "write max_retry_after to bound it"}
			r.Fail(pair[0], cmp.Or(hints[lower], "leave it out"),
				"nodes and proxies set the header %s themselves", name)
		case slices.Contains(names, lower):
			r.Fail(pair[0], "remove one of them", "the header %s is in headers twice", name)
		case !fieldValue.MatchString(value):
			r.Fail(pair[1], "use printable ASCII characters, with no blank at either end", "%s cannot be %s",
				name, prose.Quote(value))
		default:
			line := textproto.CanonicalMIMEHeaderKey(name) + ": " + value + "\r\n"
			size += len(line)
			if slices.Contains(r.placeholders(pair[1], "header "+name, value, owner.Action, "origin"), "origin") {
				owner.Response.OriginFields += line
			} else {
				owner.Response.Fields += line
			}
		}
		names = append(names, lower)
	}
	if len(names) > rule.MaxFields || size > rule.MaxFieldSize {
		r.Fail(n, fmt.Sprintf("at most %d headers with %d bytes are allowed", rule.MaxFields, rule.MaxFieldSize),
			"there are %d headers with %d bytes", len(names), size)
	}
}

var (
	fieldName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
	fieldValue = regexp.MustCompile(`^[!-~]([ -~]*[!-~])?$`)
	origin     = regexp.MustCompile(
		`^[a-z][a-z0-9+.-]*://((\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?$`)
)

// originList reads the origins that may replace {origin}.
func (r *reader) originList(n *yaml.Node) (list []string) {
	for _, element := range r.Sequence(n, "origins", "write [https://app.example.com]", "") {
		text, ok := r.Text(element, "an origin")
		switch {
		case !ok:
		case !origin.MatchString(text) || strings.HasPrefix(text, "https:") && strings.HasSuffix(text, ":443") ||
			strings.HasPrefix(text, "http:") && strings.HasSuffix(text, ":80"):
			r.Fail(element, "write it as browsers do, such as https://app.example.com or https://*.example.com:8443: "+
				"in lower case, without a path or the default port", "an origin cannot be %s", prose.Quote(text))
		case slices.Contains(list, text):
			r.Fail(element, "remove one of them", "the origin %s is listed twice", text)
		}
		list = append(list, text)
	}
	if len(list) > rule.MaxOrigins {
		r.Fail(n, fmt.Sprintf("at most %d are allowed; https://*.example.com stands for all subdomains", rule.MaxOrigins),
			"there are %d origins", len(list))
	}
	return list
}

// placeholders returns the placeholders in text: {id}, {retry_after} and those in others. Errors call text
// subject. Other names in braces, such as those in scripts, are text, unless they look like misspelled placeholders.
func (r *reader) placeholders(n *yaml.Node, subject, text string, action rule.Action,
	others ...string) (used []string) {
	known := append([]string{"id", "retry_after"}, others...)
	for _, found := range inBraces.FindAllStringSubmatch(text, -1) {
		switch name := found[1]; prose.Guess(name, known) {
		case "":
		case name:
			used = append(used, name)
			if action.Hides() && name != "origin" {
				r.Fail(n, "leave the placeholders out, or write action: block",
					"a %v must not be noticeable, but its %s has {id} or {retry_after}", action, subject)
			}
		default:
			r.Fail(n, "use {"+strings.Join(known, "} or {")+"}", "unknown placeholder {%s} in %s", name, subject)
		}
	}
	return used
}

var inBraces = regexp.MustCompile(`\{([\w-]+)\}`)

// isContentType reports whether s is a printable media type, with or without parameters.
func isContentType(s string) bool {
	kind, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(kind, "/") && s[0] != ' ' &&
		!strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}
