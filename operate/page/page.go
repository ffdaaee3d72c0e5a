// Package page implements the web page with which operators observe and control a node. The node renders each part of
// the page as HTML, and streams the parts that have changed to browsers, where a script inserts them. Operators'
// changes go through the admin API.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/operate"
)

// A Page is the page of a node. As an http.Handler it serves the static files, which reveal nothing about the node.
// Events serves the rest.
type Page struct {
	operator operate.Operations
	history  *operate.History
	now      func() time.Time
	files    map[string]file
	build    string // a hash of the files: browsers reload the page if it changes

	mu      sync.Mutex // guards the following; held while parts are rendered
	second  int64      // Unix time of the last check for changes
	looked  time.Time  // when the node was last queried
	changed uint64     // the last result of operator.Changed
	sampled int64      // the step of the last sample
	made    [lifetimes]map[string]part
	status  operate.Status
	names   []string // of rules, those with the most refusals first
}

// A file is one of the static files of the page.
type file struct{ kind, text string }

var (
	//go:embed assets/index.html
	index string
	//go:embed assets/page.css
	style string
	//go:embed assets/page.js
	script string
	//go:embed assets/icon.svg
	icon string
)

// policy allows only resources of the node, and no inline scripts or styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// New returns the page of a node with this history. While operator.Changed returns the same number, the page renders
// most of its parts only every 5 s.
func New(operator operate.Operations, history *operate.History, now func() time.Time) *Page {
	p := &Page{operator: operator, history: history, now: now, files: map[string]file{}}
	all := sha256.New()
	for _, f := range []struct{ path, kind, text string }{
		{"/", "text/html", index}, {"/page/page.css", "text/css", style}, {"/page/page.js", "text/javascript", script},
		{"/page/icon.svg", "image/svg+xml", icon}, {"/page/report.css", "text/css", chart.Style},
	} {
		p.files[f.path] = file{f.kind + "; charset=utf-8", f.text}
		_, _ = io.WriteString(all, f.text)
	}
	p.build = hex.EncodeToString(all.Sum(nil)[:8])
	return p
}

func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := p.files[r.URL.Path]
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache") // ask whether it has changed
	h.Set("ETag", strconv.Quote(p.build))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(f.text))
}
