package page

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/edgelimit/edge/operate"
)

// A view describes what one browser shows. The query of its stream specifies it.
type view struct {
	span    int // index in operate.Spans
	query   operate.Query
	search  string // for mitigations, as typed
	problem string // why the search is invalid
	target  string // client or key to explain
}

// viewOf returns the view for a query. The search is an address, a network, the beginning of a key, or the name of a
// node.
func viewOf(q url.Values) view {
	v := view{target: q.Get("ask"), search: q.Get("search"), query: operate.Query{
		Rule: q.Get("rule"), State: q.Get("state"), Sort: q.Get("sort"), Cursor: q.Get("cursor"), Limit: shownMitigations,
	}}
	if v.query.State == "" && q.Get("all") == "" {
		v.query.State = "active"
	}
	for i, s := range operate.Spans {
		if q.Get("span") == s.Name {
			v.span = i
		}
	}
	search := strings.TrimSpace(v.search)
	client, err := operate.ParseClient(search)
	switch {
	case search == "":
	case err == nil:
		v.query.Client = client
	case strings.Contains(search, "/"):
		v.problem = "This is not a network such as 203.0.113.0/24."
	case keyStart.MatchString(strings.ToLower(search)):
		v.query.Key = strings.ToLower(search)
	default:
		v.query.Node = search
	}
	return v
}

var keyStart = regexp.MustCompile(`^[0-9a-f]{4,32}$`)

// A part of the page is HTML that replaces the content of an element.
type part struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// An event is a message to browsers, with the time and the parts that have changed.
type event struct {
	Now   int64  `json:"now"` // milliseconds since the Unix epoch
	Build string `json:"build"`
	Parts []part `json:"parts"`
}

const (
	// every is the interval at which parts are rendered while there are viewers.
	every = time.Second

	// writeTime is the maximum time to write an event. Slow readers are disconnected.
	writeTime = 15 * time.Second
)

// Events serves the stream of the parts that have changed, until the client is gone or the server stops.
func (p *Page) Events(w http.ResponseWriter, r *http.Request) {
	v, control := viewOf(r.URL.Query()), http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server's deadline was for the request
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // keeps proxies from waiting for more
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	seed, sent := maphash.MakeSeed(), map[string]uint64{}
	for {
		now := p.now()
		e := event{Now: now.UnixMilli(), Build: p.build}
		for _, part := range p.parts(v, now) {
			if hash := maphash.String(seed, part.HTML); sent[part.ID] != hash {
				sent[part.ID] = hash
				e.Parts = append(e.Parts, part)
			}
		}
		text, _ := json.Marshal(e)                              // strings can always be encoded
		_ = control.SetWriteDeadline(time.Now().Add(writeTime)) // not in tests
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}
