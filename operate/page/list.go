package page

import (
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/operate"
)

// shownMitigations is the number of mitigations on a page.
const shownMitigations = 25

// ends returns when a mitigation ends, in milliseconds since the Unix epoch, by this node's clock.
func ends(now time.Time, left float64) int64 {
	return now.Add(time.Duration(left * float64(time.Second))).Round(time.Second).UnixMilli()
}

// mitigations renders the page of mitigations that v shows.
func (p *Page) mitigations(v view, now time.Time) part {
	var found operate.Mitigations
	q, problem := v.query, v.problem
	if problem == "" {
		var err error
		if found, err = p.operator.Mitigations(q); err != nil {
			problem = sentence(err)
		}
	}
	return write("list", "list", struct {
		Found           operate.Mitigations
		Query           operate.Query
		Search, Problem string
		All             bool // one request can lift the whole list
		Now             time.Time
	}{found, q, v.search, problem,
		len(found.Mitigations) > 0 && q.Key == "" && q.Node == "" && (q.State == "" || q.State == "active"), now})
}

// sentence formats an error as a sentence.
func sentence(err error) string {
	text := prose.Message(err)
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
