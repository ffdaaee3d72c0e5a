package rule

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

// An Action is what happens to the requests of a mitigated key. Greater actions are more severe. If
// several rules mitigate a request, the most severe action is taken.
//
// To add an action, add a constant and a row to actions, and a row to those of load/judge/answer.go. If it lets
// requests pass, add its verdict to the others that do in deploy/monitoring.yaml.
type Action uint8

const (
	Log       Action = iota // count and record, never act
	Shed                    // refuse the share of the key's clients that exceeds the threshold
	ShadowBan               // answer with a prepared response, without asking the origin
	Block                   // refuse with a response that says why
	Close                   // close the connection, or reset the stream

	Actions      = iota // how many there are
	leastRefusal = Shed // less severe actions let requests pass
)

// An actionRow says what distinguishes an action from others.
type actionRow struct {
	name, verdict string // in rules files, and in metrics and logs
	does          string // what happens to requests, in English; % is the status of the response
	hides         bool   // clients must not notice: by default, they get an empty 200
	tellsQuota    bool   // clients learn what is left of limits
}

var actions = [Actions]actionRow{
	Log: {name: "log", verdict: "logged", does: "still pass, but are logged,"},
	Shed: {name: "shed", verdict: "shed",
		does: "are refused with % for the share of its clients that exceeds the threshold,"},
	ShadowBan: {name: "shadow_ban", verdict: "shadow_banned", hides: true,
		does: "get a prepared % and never reach the origin"},
	Block: {name: "block", verdict: "blocked", does: "are refused with %", tellsQuota: true},
	Close: {name: "close", verdict: "closed", tellsQuota: true,
		does: "have their connection closed (or, behind a trusted proxy, get %)"},
}

// ActionNames returns the names of all actions, in their order.
func ActionNames() []string {
	return prose.Texts(actions[:], func(a actionRow) string { return a.name })
}

// Verdicts returns the verdicts on requests, as metrics and logs write them, by action.
func Verdicts() []string {
	return prose.Texts(actions[:], func(a actionRow) string { return a.verdict })
}

// String returns the action as spelled in rules files.
func (a Action) String() string { return actions[a].name }

// Does says what happens to requests, given the status of the response.
func (a Action) Does(status string) string { return strings.Replace(actions[a].does, "%", status, 1) }

// Refuses reports whether requests are kept from the origin.
func (a Action) Refuses() bool { return a >= leastRefusal }

// Hides reports whether clients must not notice that they are refused.
func (a Action) Hides() bool { return actions[a].hides }

// TellsQuota reports whether clients learn what is left of r's limits.
func (r *Rule) TellsQuota() bool { return actions[r.Action].tellsQuota && !r.HidesQuota }

// A Response is what a refused request gets.
type Response struct {
	Status      int
	ContentType string
	Body        string

	Filled bool // the body has placeholders; see AppendBody

	// Fields are further header fields, as lines that end in CRLF. OriginFields are those with {origin}. See AppendFields.
	Fields, OriginFields string

	// Origins are the origins that may replace {origin}, in the form in which browsers send them. "*." at the beginning
	// of a host stands for one or more labels.
	Origins []string

	// MaxRetryAfter is the longest time that clients are told to wait, even if the mitigation lasts longer. 0 means any.
	MaxRetryAfter time.Duration
}

// DefaultResponse returns the response of rules with the action that do not set one.
func DefaultResponse(action Action) *Response {
	r := &Response{Status: http.StatusTooManyRequests, ContentType: "text/plain; charset=utf-8",
		Body: "too many requests\n"}
	if action.Hides() {
		r.Status, r.Body = http.StatusOK, ""
	}
	return r
}

// AppendBody appends the body to dst. It replaces {id} with id and {retry_after} with retryAfter, in seconds.
func (r *Response) AppendBody(dst, id []byte, retryAfter int64) []byte {
	return fill(dst, r.Body, id, retryAfter, "")
}

// AppendFields appends the header fields to dst, and replaces placeholders as AppendBody does. Fields with {origin} are
// left out unless origin, the request's Origin, is one of Origins.
func (r *Response) AppendFields(dst, id []byte, retryAfter int64, origin string) []byte {
	dst = fill(dst, r.Fields, id, retryAfter, "")
	if slices.ContainsFunc(r.Origins, func(listed string) bool { return isOrigin(origin, listed) }) {
		dst = fill(dst, r.OriginFields, id, retryAfter, origin)
	}
	return dst
}

// fill appends text to dst with its placeholders replaced, {origin} only if origin is not empty.
func fill(dst []byte, text string, id []byte, retryAfter int64, origin string) []byte {
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "{")
		dst = append(dst, before...)
		if !found {
			return dst
		}
		if more, ok := strings.CutPrefix(after, "id}"); ok {
			dst, rest = append(dst, id...), more
		} else if more, ok := strings.CutPrefix(after, "retry_after}"); ok {
			dst, rest = strconv.AppendInt(dst, retryAfter, 10), more
		} else if more, ok := strings.CutPrefix(after, "origin}"); ok && origin != "" {
			dst, rest = append(dst, origin...), more
		} else {
			dst, rest = append(dst, '{'), after
		}
	}
}

// isOrigin reports whether origin is listed. The "*" in listed matches only part of a host.
func isOrigin(origin, listed string) bool {
	scheme, domain, wild := strings.Cut(listed, "*")
	if !wild {
		return origin == listed
	}
	rest, ok := strings.CutPrefix(origin, scheme)
	labels, end := strings.CutSuffix(rest, domain)
	return ok && end && 0 < len(labels) && len(labels) < 254 && labels[0] != '.' &&
		strings.Trim(labels, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// NodeSets reports whether nodes, engines or proxies in front set the header field called name themselves, so that
// rules cannot add it to a response.
func NodeSets(name string) bool {
	return slices.ContainsFunc(nodeFields, func(f string) bool {
		n := min(len(name), len(strings.TrimSuffix(f, "*")))
		return strings.EqualFold(name[:n], strings.TrimSuffix(f, "*")) && (n == len(name) || n < len(f))
	})
}

// nodeFields are the names of such fields. A * at the end stands for the rest of a name.
var nodeFields = strings.Fields(`Cache-Control Connection Content-Length Content-Type Date Grpc-* HTTP2-Settings
	Keep-Alive Proxy-* RateLimit* Refusal-Id Retry-After TE Trailer Transfer-Encoding Upgrade X-Accel-* X-Edge-*
	X-RateLimit-*`)
