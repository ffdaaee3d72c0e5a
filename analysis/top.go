package analysis

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// refusals are requests that were refused, or of which something else is to be told, by client
// and by path.
type refusals struct {
	requests uint64
	first    int64
	clients  map[netip.Addr]*refusedClient
	paths    map[string]uint64
}

type refusedClient struct {
	name    string
	refused uint64
	first   int64
}

// add takes in a canonical request.
func (r *refusals) add(e *accesslog.Entry, req *rule.Request, p rule.ClientPrefix, now int64) {
	if r.requests++; r.requests == 1 {
		r.first = now
		r.clients, r.paths = map[netip.Addr]*refusedClient{}, map[string]uint64{}
	}
	client := r.clients[req.Client()]
	if client == nil {
		client = &refusedClient{name: nameOf(e, req, p), first: now}
		r.clients[req.Client()] = client
	}
	client.refused++
	if _, known := r.paths[req.Path]; known {
		r.paths[req.Path]++
		return
	}
	if len(r.paths) >= maxPaths {
		r.forgetRare()
	}
	r.paths[strings.Clone(req.Path[:min(len(req.Path), maxPath)])]++
}

const (
	// maxPaths is how many paths are remembered: an attack may name a new one with each
	// request. Then the rarer half of them is forgotten, which is about those that were
	// seen once. Counts of paths are at most too small by what was forgotten so.
	maxPaths = 1 << 14

	// maxPath is how many bytes of a path are kept.
	maxPath = 256
)

// forgetRare forgets the rarer half of the paths.
func (r *refusals) forgetRare() {
	counts := make([]uint64, 0, len(r.paths))
	for _, n := range r.paths {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	median := counts[len(counts)/2]
	for path, n := range r.paths {
		if n <= median {
			delete(r.paths, path)
		}
	}
}

// topClients returns the n clients with the most refusals, those first that were refused
// first where they have as many.
func (r *refusals) topClients(n int, name func(string) string) (top []TopClient) {
	all := make([]*refusedClient, 0, len(r.clients))
	for _, c := range r.clients {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *refusedClient) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.first, b.first), cmp.Compare(a.name, b.name))
	})
	for _, c := range all[:min(n, len(all))] {
		top = append(top, TopClient{name(c.name), c.refused, timeOf(c.first)})
	}
	return top
}

// topPaths returns the n paths with the most refusals.
func (r *refusals) topPaths(n int) (top []TopPath) {
	for path, refused := range r.paths {
		top = append(top, TopPath{path, refused})
	}
	slices.SortFunc(top, func(a, b TopPath) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Path, b.Path))
	})
	return slices.Clip(top[:min(n, len(top))])
}

// firstRefusal returns when the first request was refused, nil if none was.
func (r *refusals) firstRefusal() *time.Time {
	if r.requests == 0 {
		return nil
	}
	first := timeOf(r.first)
	return &first
}

// timeOf returns a time of the log.
func timeOf(t int64) time.Time { return time.UnixMicro(t).UTC() }
