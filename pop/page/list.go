package page

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/pop/admin"
)

// shownMitigations is the number of mitigations on a page.
const shownMitigations = 25

var keyStart = regexp.MustCompile(`^[0-9a-f]{4,32}$`)

// query returns the query for l. The search is an address, a network, the beginning of a key, or the
// name of a node.
func (l list) query() (q admin.Query, problem string) {
	q = admin.Query{Rule: l.rule, State: l.state, Sort: l.sort, Cursor: l.cursor, Limit: shownMitigations}
	switch search := strings.TrimSpace(l.search); {
	case search == "":
	case strings.Contains(search, "/"):
		prefix, err := netip.ParsePrefix(search)
		if err != nil {
			return q, "This is not a network such as 203.0.113.0/24."
		}
		q.Client = prefix
	case keyStart.MatchString(strings.ToLower(search)):
		q.Key = strings.ToLower(search)
	default:
		if addr, err := netip.ParseAddr(search); err == nil {
			addr = addr.WithZone("").Unmap()
			q.Client = netip.PrefixFrom(addr, addr.BitLen())
		} else {
			q.Node = search
		}
	}
	return q, ""
}

// A row is a mitigation in the list.
type row struct {
	admin.Mitigation
	End int64 // milliseconds since the Unix epoch, by this node's clock
}

func rowOf(m admin.Mitigation, now time.Time) row {
	end := now.Add(time.Duration(m.Left * float64(time.Second))).Round(time.Second)
	return row{m, end.UnixMilli()}
}

// mitigations renders a page of mitigations.
func (p *Page) mitigations(l list, now time.Time) part {
	q, problem := l.query()
	var found admin.Mitigations
	if problem == "" {
		var err error
		if found, err = p.o.Operations.Mitigations(q); err != nil {
			problem = sentence(err.Error())
		}
	}
	rows := make([]row, len(found.Mitigations))
	for i, m := range found.Mitigations {
		rows[i] = rowOf(m, now)
	}
	network := ""
	if q.Client.IsValid() {
		network = q.Client.String()
	}
	return write("list", "list", struct {
		Rows                []row
		Total               int
		Next, Problem       string
		Rule, Network, Rest string
		All                 bool // the whole list can be lifted at once
		Clients             bool // some client is known
	}{rows, found.Total, found.Next, problem, l.rule, network, l.search,
		len(rows) > 0 && q.Key == "" && q.Node == "" && (l.state == "" || l.state == "active"),
		slices.ContainsFunc(rows, func(r row) bool { return r.Client != "" })})
}

// sentence formats the text of an error as a sentence.
func sentence(text string) string {
	text = strings.TrimPrefix(text, "pop: ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
