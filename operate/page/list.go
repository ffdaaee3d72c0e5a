package page

import (
	"regexp"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/operate"
)

// shownMitigations is the number of mitigations on a page.
const shownMitigations = 25

var keyStart = regexp.MustCompile(`^[0-9a-f]{4,32}$`)

// query returns the query for l. The search is an address, a network, the beginning of a key, or the name of a node.
func (l list) query() (q operate.Query, problem string) {
	q = operate.Query{Rule: l.rule, State: l.state, Sort: l.sort, Cursor: l.cursor, Limit: shownMitigations}
	search := strings.TrimSpace(l.search)
	client, err := operate.ParseClient(search)
	switch {
	case search == "":
	case err == nil:
		q.Client = client
	case strings.Contains(search, "/"):
		return q, "This is not a network such as 203.0.113.0/24."
	case keyStart.MatchString(strings.ToLower(search)):
		q.Key = strings.ToLower(search)
	default:
		q.Node = search
	}
	return q, ""
}

// ends returns when a mitigation ends, in milliseconds since the Unix epoch, by this node's clock.
func ends(now time.Time, left float64) int64 {
	return now.Add(time.Duration(left * float64(time.Second))).Round(time.Second).UnixMilli()
}

// mitigations renders a page of mitigations.
func (p *Page) mitigations(l list, now time.Time) part {
	q, problem := l.query()
	var found operate.Mitigations
	if problem == "" {
		var err error
		if found, err = p.operator.Mitigations(q); err != nil {
			problem = sentence(err)
		}
	}
	rows, network := found.Mitigations, ""
	if q.Client.IsValid() {
		network = q.Client.String()
	}
	return write("list", "list", struct {
		Now                 time.Time
		Rows                []operate.Mitigation
		Total               int
		Next, Problem       string
		Rule, Network, Rest string
		All                 bool // one request can lift the whole list
	}{now, rows, found.Total, found.Next, problem, l.rule, network, l.search,
		len(rows) > 0 && q.Key == "" && q.Node == "" && (l.state == "" || l.state == "active")})
}

// sentence formats an error as a sentence.
func sentence(err error) string {
	text := prose.Message(err)
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
