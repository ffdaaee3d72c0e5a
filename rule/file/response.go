package file

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

// response reads a response into to. It returns the node of the body, or nil if there is none.
func (r *reader) response(n *yaml.Node, to *rule.Response) (body *yaml.Node) {
	r.Mapping(n, "response", "write response: {status: 429, body: too many requests}", []strictyaml.Field{
		strictyaml.Whole(&r.Document, "status", "", &to.Status, rule.MinStatus, rule.MaxStatus),
		{Name: "content_type", Read: func(n *yaml.Node) {
			text, ok := r.Text(n, "content_type")
			if ok && !isContentType(text) {
				r.Fail(n, "write a type such as text/html or application/json", "content_type cannot be %s", prose.Quote(text))
			}
			to.ContentType = text
		}},
		{Name: "body", Read: func(n *yaml.Node) {
			text, ok := r.Text(n, "body")
			if ok && len(text) > rule.MaxBody {
				r.Fail(n, fmt.Sprintf("at most %d are allowed", rule.MaxBody), "body has %d bytes", len(text))
			}
			to.Body, to.Filled, body = text, r.placeholders(n, text), n
		}},
	})
	if to.Body != "" && (to.Status == http.StatusNoContent || to.Status == http.StatusNotModified) {
		r.Fail(body, "leave the body out, or use another status", "a response of status %d has no body", to.Status)
	}
	return body
}

// placeholders reports whether a body has placeholders. Other names in braces, such as those in scripts,
// are text, unless they look like misspelled placeholders.
func (r *reader) placeholders(n *yaml.Node, body string) (some bool) {
	for _, found := range inBraces.FindAllStringSubmatch(body, -1) {
		switch name := found[1]; prose.Guess(name, []string{"id", "retry_after"}) {
		case "":
		case name:
			some = true
		default:
			r.Fail(n, "use {id} or {retry_after}", "unknown placeholder {%s} in body", name)
		}
	}
	return some
}

var inBraces = regexp.MustCompile(`\{([\w-]+)\}`)

// isContentType reports whether s is a printable media type, with or without parameters.
func isContentType(s string) bool {
	kind, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(kind, "/") && s[0] != ' ' && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

// complete returns r with defaults for what the file omits. hasBody says whether it has a body.
func complete(r rule.Response, action rule.Action, hasBody bool) *rule.Response {
	usual := rule.DefaultResponse(action)
	r.Status = cmp.Or(r.Status, usual.Status)
	if r.ContentType == "" {
		r.ContentType = usual.ContentType
		if !hasBody && r.Status == usual.Status {
			r.Body = usual.Body
		}
	}
	return &r
}
