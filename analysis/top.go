package analysis

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/rule"
)

// refusals count refused requests, or others of interest, by client and by path.
type refusals struct {
	requests uint64
	first    *time.Time // time of the first one
	clients  map[netip.Addr]*refusedClient
	paths    map[string]uint64
}

type refusedClient struct {
	TopClient
	attack uint64 // requests that the log marks as an attack
}

func (r *refusals) add(q *replayedRequest, p rule.ClientPrefix) {
	if r.requests++; r.requests == 1 {
		first := figure.TimeOf(q.now)
		r.first, r.clients, r.paths = &first, map[netip.Addr]*refusedClient{}, map[string]uint64{}
	}
	client := r.clients[q.network]
	if client == nil {
		client = &refusedClient{TopClient{Client: nameOf(&q.entry, q.network, p), First: figure.TimeOf(q.now)}, 0}
		r.clients[q.network] = client
	}
	client.Requests++
	if q.entry.Attack {
		client.attack++
	}
	req := rule.Request{Path: q.entry.Path}
	req.Canonicalize(p)
	path := req.Path[:min(len(req.Path), maxPath)]
	if _, known := r.paths[path]; !known {
		if len(r.paths) >= maxPaths {
			r.forgetRare()
		}
		path = strings.Clone(path)
	}
	r.paths[path]++
}

const (
	// maxPaths is the maximum number of remembered paths: an attack may use a new path with each request. At
	// the maximum, the rarer half of them is forgotten, mostly those that were seen only once. So counts of
	// paths may be too low.
	maxPaths = 1 << 14

	// maxPath is the maximum number of bytes kept of a path.
	maxPath = 256
)

// forgetRare forgets the rarer half of the paths.
func (r *refusals) forgetRare() {
	counts := slices.Sorted(maps.Values(r.paths))
	median := counts[len(counts)/2]
	maps.DeleteFunc(r.paths, func(_ string, n uint64) bool { return n <= median })
}

// insertTop inserts x into a sorted list of the first n, and returns the list.
func insertTop[T any](top []T, n int, x T, compare func(a, b T) int) []T {
	at, _ := slices.BinarySearchFunc(top, x, compare)
	if at == n {
		return top
	}
	top = slices.Insert(top, at, x)
	return top[:min(n, len(top))]
}

// sorted returns the clients, those with the most refusals first. Among equals, those that were refused first come
// first.
func (r *refusals) sorted() []*refusedClient {
	return slices.SortedFunc(maps.Values(r.clients), func(a, b *refusedClient) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), a.First.Compare(b.First), cmp.Compare(a.Client, b.Client))
	})
}

// topClients returns the n clients with the most refusals.
func (r *refusals) topClients(n int, name func(string) string) (top []TopClient) {
	all := r.sorted()
	for _, c := range all[:min(n, len(all))] {
		top = append(top, TopClient{name(c.Client), c.Requests, c.First})
	}
	return top
}

// shares returns the number of refusals of the 1, 2, 5, 10 … clients with the most, and of all.
func (r *refusals) shares() (shares []Share) {
	sum, power := uint64(0), 1
	for i, c := range r.sorted() {
		sum += c.Requests
		switch rank := i + 1; {
		case rank == power || rank == 2*power || rank == 5*power || rank == len(r.clients):
			shares = append(shares, Share{rank, sum})
		case rank == 10*power-1:
			power *= 10
		}
	}
	return shares
}

// topPaths returns the n paths with the most refusals.
func (r *refusals) topPaths(n int) (top []TopPath) {
	paths := byCount(r.paths)
	for _, path := range paths[:min(n, len(paths))] {
		top = append(top, TopPath{path, r.paths[path]})
	}
	return top
}

// byCount returns the names in counts, those with the greatest counts first.
func byCount(counts map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}
