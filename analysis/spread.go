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

// A Spread is a way to distribute requests to the nodes of a PoP.
type Spread uint8

const (
	// ByConnection sends the requests of an address to the same node until the address has been silent for a minute.
	// Its next connection goes to a random node.
	ByConnection Spread = iota

	// ByRequest sends each request to a random node.
	ByRequest
)

var spreadNames = [...]string{ByConnection: "connection", ByRequest: "request"}

// String returns the name that ParseSpread parses.
func (s Spread) String() string { return spreadNames[s] }

// ParseSpread parses the name of a Spread: connection or request.
func ParseSpread(name string) (Spread, error) {
	if s := slices.Index(spreadNames[:], name); s >= 0 {
		return Spread(s), nil
	}
	return 0, fmt.Errorf("analysis: invalid spread %q: use connection or request", name)
}

// silence is how long an idle connection of a client stays open.
const silence = time.Minute

// spread draws the nodes of requests.
type spread struct {
	by          Spread
	nodes       int
	random      *rand.Rand
	connections agingTable[connection] // of each address
}

// A connection is from an address to a node.
type connection struct {
	node uint16 // plus 1; 0 if the connection was never open
	used int64
}

func newSpread(o PoPOptions) spread {
	return spread{
		by: o.Spread, nodes: o.Nodes,
		random:      rand.New(rand.NewPCG(o.seed, 0)),
		connections: agingTable[connection]{life: silence.Microseconds(), each: 1},
	}
}

// draw sets the nodes of requests. It touches their connections together, so that cache misses overlap.
func (s *spread) draw(requests []replayedRequest) {
	if s.nodes <= 1 {
		return
	}
	if young := s.connections.young; young != nil {
		for i := range requests {
			young.Touch(requests[i].hash) // the right place unless the client is a network
		}
	}
	for i := range requests {
		r := &requests[i]
		r.node = s.node(r.addr, r.now)
	}
}

// node returns the node for a request from an address at now.
func (s *spread) node(addr netip.Addr, now int64) uint16 {
	if s.by == ByRequest {
		return uint16(s.random.IntN(s.nodes))
	}
	key := accesslog.Client(addr.As16())
	s.connections.age(now, now)
	c := &s.connections.get(&key, client.Hash(&key))[0]
	if c.node == 0 || now-c.used > silence.Microseconds() {
		c.node = uint16(s.random.IntN(s.nodes)) + 1
	}
	c.used = now
	return c.node - 1
}
