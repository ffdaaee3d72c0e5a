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
	first    int64
	clients  map[netip.Addr]*refusedClient
	paths    map[string]uint64
}

type refusedClient struct {
	name    string
	refused uint64
	attack  uint64 // those that the log marks as an attack
	first   int64
}

func (r *refusals) add(q *replayedRequest, p rule.ClientPrefix) {
	if r.requests++; r.requests == 1 {
		r.first = q.now
		r.clients, r.paths = map[netip.Addr]*refusedClient{}, map[string]uint64{}
	}
	client := r.clients[q.network]
	if client == nil {
		client = &refusedClient{name: nameOf(&q.entry, q.network, p), first: q.now}
		r.clients[q.network] = client
	}
	client.refused++
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

// topClients returns the n clients with the most refusals. Among equals, those that were refused first come
// first.
func (r *refusals) topClients(n int, name func(string) string) (top []TopClient) {
	all := slices.SortedFunc(maps.Values(r.clients), func(a, b *refusedClient) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.first, b.first), cmp.Compare(a.name, b.name))
	})
	for _, c := range all[:min(n, len(all))] {
		top = append(top, TopClient{name(c.name), c.refused, figure.TimeOf(c.first)})
	}
	return top
}

// shares returns the number of refusals of the 1, 2, 5, 10 … clients with the most, and of all.
func (r *refusals) shares() (shares []Share) {
	var counts []uint64
	for _, c := range r.clients {
		counts = append(counts, c.refused)
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	sum, power := uint64(0), 1
	for i, n := range counts {
		sum += n
		switch rank := i + 1; {
		case rank == power || rank == 2*power || rank == 5*power || rank == len(counts):
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

func (r *refusals) firstRefusal() *time.Time {
	if r.requests == 0 {
		return nil
	}
	first := figure.TimeOf(r.first)
	return &first
}
