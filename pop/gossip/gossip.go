package gossip

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/lograte"
)

// Options configures a Gossip. Name and Listen are required. The caller must have checked the addresses.
type Options struct {
	// Name identifies the node within the PoP.
	Name string

	// Listen is the address, IP:PORT, that other nodes send to, over UDP and TCP. Port 0 means any free port. Without Keys
	// it must be a loopback address.
	Listen string

	// Advertise is the address, IP:PORT, at which other nodes reach Listen. If empty, it is Listen, or a private
	// address of the machine if Listen is all of its addresses.
	Advertise string

	// Join are the addresses, HOST:PORT, of nodes to join first; the node itself may be
	// one of them. If empty, others must join this node.
	Join []string

	// Keys encrypt and authenticate messages; each has 16, 24 or 32 bytes. The first one is used
	// for sending, all of them for receiving.
	Keys [][]byte

	// MaxNodes is the expected number of nodes in the PoP. The node keeps at most 2·MaxNodes TCP connections open, and
	// reads the state of at most 2·MaxNodes nodes, or of 128, from each. If zero, 16.
	MaxNodes int

	// Logger logs peers that join or leave. If nil, slog.Default().
	Logger *slog.Logger

	// Registerer registers the metrics. If nil, they are not registered.
	Registerer prometheus.Registerer

	// Tests replace the transport, and shorten times.
	wrap func(memberlist.Transport) memberlist.Transport
	tune func(*memberlist.Config)
}

// A Handler handles the messages and statuses of other nodes. All functions are required. They must not block, or
// retain their arguments.
type Handler struct {
	// Receive handles a message from another node. age is 0 while that node's clock is not known. Errors of Receive and
	// ReceiveStatus are logged at a limited rate.
	Receive func(from string, message []byte, age time.Duration) error

	// Status returns this node's status, of at most MaxStatus bytes, which reaches all other nodes within seconds.
	// ReceiveStatus handles that of another node; relayed means that a third node passed it on, so it may be some seconds
	// old.
	Status        func() []byte
	ReceiveStatus func(from string, status []byte, relayed bool) error
}

func (o Options) withDefaults() (Options, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.MaxNodes = cmp.Or(o.MaxNodes, 16)
	if o.wrap == nil {
		o.wrap = func(t memberlist.Transport) memberlist.Transport { return t }
	}
	return o, checkKeys(o.Keys)
}

// IsKey reports whether a key has a valid length.
func IsKey(key []byte) bool { return memberlist.ValidateKey(key) == nil }

func checkKeys(keys [][]byte) error {
	for _, key := range keys {
		if !IsKey(key) {
			return fmt.Errorf("gossip: a key of %d bytes: keys have 16, 24 or 32", len(key))
		}
	}
	return nil
}

// A Gossip is a node's endpoint for the gossip of a PoP. Its methods may be called
// concurrently.
type Gossip struct {
	o       Options
	run     uint64 // unique to this process
	metrics *metrics
	wake    chan struct{}       // capacity 1: there is something to send
	invalid lograte.Limiter     // logs messages that cannot be decoded
	keyring *memberlist.Keyring // nil without keys

	// Set by Start.
	list    *memberlist.Memberlist
	addr    string
	handler Handler
	meta    []byte

	end              context.CancelFunc // ends the goroutines of sending
	sending          sync.WaitGroup
	accepting        sync.WaitGroup
	statusAt, sendAt time.Time // when the status is sent next, and messages at the earliest

	mu      sync.Mutex       // guards the fields below
	links   map[uint64]*link // by run
	version uint64           // of this node's last status
	waiting []batch          // of this node, to be sent to all
	batches uint64           // number of batches sent so far
	kept    []batch          // that rounds summarize, in the order of their arrival
	round   time.Time        // when to send summaries next, if batches are kept
	out     []outgoingPacket // waiting to be sent; while mu is not held, only answers
	bulk    []parcel         // waiting messages of SendTo
	failed  string           // why the last attempt to join failed; empty if there has been a peer since

	wrongKey wrongKey
}

// New returns a Gossip. Start opens its sockets.
func New(o Options) (*Gossip, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Gossip{
		o: o, run: rand.Uint64(), invalid: lograte.Limiter{Every: 10 * time.Second},
		wake: make(chan struct{}, 1), links: map[uint64]*link{},
	}
	if len(o.Keys) > 0 {
		if g.keyring, err = memberlist.NewKeyring(o.Keys, o.Keys[0]); err != nil {
			return nil, fmt.Errorf("gossip: %w", err)
		}
	}
	g.metrics = newMetrics(o.Registerer, g)
	return g, nil
}

// config returns the configuration of memberlist.
func (g *Gossip) config() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	listen := netip.MustParseAddrPort(g.o.Listen)
	c.Name = fmt.Sprintf("%s@%016x", g.o.Name, g.run)
	c.BindAddr, c.BindPort = listen.Addr().String(), int(listen.Port())
	c.AdvertisePort = int(listen.Port())
	if g.o.Advertise != "" {
		advertise := netip.MustParseAddrPort(g.o.Advertise)
		c.AdvertiseAddr, c.AdvertisePort = advertise.Addr().String(), int(advertise.Port())
	}
	// Twice as fast as memberlist's defaults for a LAN: the nodes of a PoP are close to each other.
	c.ProbeInterval, c.ProbeTimeout = 500*time.Millisecond, 250*time.Millisecond
	c.GossipInterval = 100 * time.Millisecond
	// Liveness is gossiped twice as often as by default: otherwise, with a third of
	// all packets lost, a peer now and then misses it and declares the node dead.
	c.RetransmitMult = 8
	c.PushPullInterval = 10 * time.Second
	c.TCPTimeout = joinTimeout
	c.EnableCompression = false // records do not get smaller
	c.Logger = log.New(logReader{g, slog.NewLogLogger(g.o.Logger.Handler(), slog.LevelDebug)}, "", 0)
	d := delegate{g}
	c.Delegate, c.Events, c.Alive = d, d, d
	c.Keyring = g.keyring
	if g.o.tune != nil {
		g.o.tune(c)
	}
	return c
}

// Start opens the sockets and joins the PoP. It keeps trying to join nodes that do not answer. handler may be called
// before Start returns. meta, of at most 500 bytes, is what other nodes learn about this node when they meet it. After
// an error, nothing runs.
func (g *Gossip) Start(handler Handler, meta []byte) error {
	c := g.config()
	g.handler, g.meta = handler, meta
	transport, err := g.newTransport(c)
	if err != nil {
		return fmt.Errorf("gossip: listening on %s: %w", g.o.Listen, err)
	}
	c.Transport = transport
	// Create already calls the delegate, so everything else must be set.
	if g.list, err = memberlist.Create(c); err != nil {
		_ = transport.Shutdown()
		g.accepting.Wait()
		return fmt.Errorf("gossip: %w", err)
	}
	g.addr = g.list.LocalNode().Address()
	var ctx context.Context
	ctx, g.end = context.WithCancel(context.Background())
	g.sending.Go(func() { g.send(ctx) })
	g.sending.Go(func() { g.keepJoined(ctx) })
	return nil
}

// leaveTimeout is how long Stop tries to tell the peers that this node is leaving.
const leaveTimeout = 500 * time.Millisecond

// Stop sends the waiting messages, tells the peers that this node is leaving, and closes the sockets. Only a Gossip
// that was started can be stopped, and only once.
func (g *Gossip) Stop() error {
	g.end()
	g.sending.Wait()
	defer g.accepting.Wait()
	if err := g.list.Leave(leaveTimeout); err != nil {
		// The peers will notice.
		g.o.Logger.Debug("the other nodes may not have heard that this node is leaving", "err", err)
	}
	return g.list.Shutdown()
}

// Addr returns the address that other nodes send to.
func (g *Gossip) Addr() string { return g.addr }

// SetKeys replaces Options.Keys. To replace a key without interruption, take three steps, each on every node: add the
// new key as the last one, make it the first, then remove the old one.
func (g *Gossip) SetKeys(keys [][]byte) error {
	switch err := checkKeys(keys); {
	case err != nil:
		return err
	case (len(keys) == 0) != (g.keyring == nil):
		return errors.New("gossip: encryption cannot be turned on or off while a node runs")
	case len(keys) == 0:
		return nil
	}
	var errs []error
	for _, key := range keys {
		errs = append(errs, g.keyring.AddKey(key))
	}
	errs = append(errs, g.keyring.UseKey(keys[0]))
	for _, old := range slices.Clone(g.keyring.GetKeys()) { // RemoveKey changes what GetKeys has returned
		if !slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(old, key) }) {
			errs = append(errs, g.keyring.RemoveKey(old))
		}
	}
	return errors.Join(errs...)
}

// A Peer is a node that is alive.
type Peer struct {
	Name string
	Addr string // IP:PORT that it listens on
	Meta []byte // as given to its Start; must not be modified

	// ClockAhead is how far its clock is ahead of this node's, if that is known.
	ClockAhead time.Duration
	ClockKnown bool
}

// Peers returns the peers, sorted by name. A node that was killed and restarted is listed twice until its killed
// process is declared dead.
func (g *Gossip) Peers() (all []Peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.peers {
		ahead, known := l.clock.offset()
		all = append(all, Peer{l.name, l.node.Address(), l.node.Meta[1:], ahead, known})
	}
	slices.SortFunc(all, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Addr, b.Addr)) })
	return all
}

// ClockOffset returns how far this node's clock is ahead of the median of the peers' clocks, or 0 while it is alone.
func (g *Gossip) ClockOffset() time.Duration { return -median(g.offsets()) }

// ClockAheadOfMost returns how far this node's clock is ahead of the median of all clocks, including its own: without
// that, one wrong clock of three would make the other two seem wrong.
func (g *Gossip) ClockAheadOfMost() time.Duration { return -median(g.offsets(0)) }

// ClockAhead returns how far this node's clock is ahead of that of the peer that is furthest
// behind, or 0 if no peer is behind.
func (g *Gossip) ClockAhead() time.Duration { return -slices.Min(g.offsets(0)) }

// offsets appends to all how far each peer's clock is ahead of this node's, if that is known, the last measured first.
func (g *Gossip) offsets(all ...time.Duration) []time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	latest := func(a, b *link) int { return b.clock.receivedAt.Compare(a.clock.receivedAt) }
	for _, l := range slices.SortedFunc(g.peers, latest) {
		if offset, ok := l.clock.offset(); ok {
			all = append(all, offset)
		}
	}
	return all
}

// SendTo passes at most MaxSendTo messages, of at most MaxMessage bytes each, to one peer. Messages to all go first,
// and those of SendTo may be lost. It returns false, and sends nothing, if the node has not been a peer lately, or if
// earlier messages of SendTo to it still wait. It does not block.
func (g *Gossip) SendTo(name string, messages ...[]byte) (ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.links {
		waits := func(p parcel) bool { return p.to == l }
		if l.name != name || !l.reached(time.Now()) || slices.ContainsFunc(g.bulk, waits) {
			continue
		}
		ok = true
		g.metrics.sent.Add(float64(len(messages)))
		for _, m := range messages {
			g.bulk = append(g.bulk, parcel{l, batch{run: g.run, since: time.Now(), bytes: appendMessage(nil, m)}})
		}
		room := min(len(g.bulk), MaxSendTo)
		g.metrics.dropped.Add(float64(len(g.bulk) - room))
		g.bulk = g.bulk[:room]
	}
	g.rouse()
	return ok
}

// rouse makes send look for work that is due.
func (g *Gossip) rouse() {
	select {
	case g.wake <- struct{}{}:
	default: // it is about to
	}
}
