package analysis

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

// A Spread says how requests come to the nodes of a PoP.
type Spread uint8

const (
	// ByConnection sends the requests of an address to the same node, until the address is
	// silent for a minute: its next connection then lands on any node.
	ByConnection Spread = iota

	// ByRequest sends each request to any node.
	ByRequest
)

var spreadNames = [...]string{ByConnection: "connection", ByRequest: "request"}

// String returns the name that ParseSpread reads.
func (s Spread) String() string { return spreadNames[s] }

// ParseSpread reads the name of a Spread: connection or request.
func ParseSpread(name string) (Spread, error) {
	if s := slices.Index(spreadNames[:], name); s >= 0 {
		return Spread(s), nil
	}
	return 0, fmt.Errorf("analysis: invalid spread %q: use connection or request", name)
}

// silence is how long a client's idle connection stays open.
const silence = time.Minute

// spread draws the nodes that requests come to.
type spread struct {
	by          Spread
	nodes       int
	random      *rand.Rand
	connections aging[int] // the node of each
}

func newSpread(o PoPOptions) spread {
	return spread{
		by: o.Spread, nodes: o.Nodes,
		random:      rand.New(rand.NewPCG(o.Seed, 0)),
		connections: aging[int]{life: silence.Microseconds()},
	}
}

// node returns the node that a request from an address comes to at now.
func (s *spread) node(addr netip.Addr, now int64) int {
	switch {
	case s.nodes <= 1:
		return 0
	case s.by == ByRequest:
		return s.random.IntN(s.nodes)
	}
	key := accesslog.Client(addr.As16())
	node, known := s.connections.get(&key, client.Hash(&key), now)
	if !known {
		*node = s.random.IntN(s.nodes)
	}
	return *node
}
