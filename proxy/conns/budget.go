package conns

import (
	"container/heap"
	"io"
	"net"
	"net/netip"
	"sync"
)

// A Budget bounds the bytes of incomplete requests that clients hold, or their connections, or their requests. If a
// client's connections hold too much, it closes the one that holds the most, and of equal ones the oldest. If all
// clients together hold too much, it closes such a connection of the client that holds the most, so that a newcomer
// gets its share. It is safe for concurrent use.
type Budget struct {
	most, mostPerClient int
	closed              func(ofClient bool) // called with mu held

	mu       *sync.Mutex // guards the fields below, and those of clients and holders; see Beside
	bytes    int
	clients  map[netip.Addr]*client // those that hold something
	heaviest heaviest[*client]
	started  uint64 // how often a connection began to hold something
}

// A client has those connections of a client that hold something.
type client struct {
	weight
	holders heaviest[*Holder]
}

// NewBudget returns a budget. most is the maximum number of bytes for all connections, and mostPerClient that for those
// of a client; 0 means no maximum. The budget calls closed for each connection that it closes; ofClient says whether
// the client's maximum was exceeded.
func NewBudget(most, mostPerClient int, closed func(ofClient bool)) *Budget {
	clients := map[netip.Addr]*client{}
	return &Budget{most: most, mostPerClient: mostPerClient, closed: closed, mu: new(sync.Mutex), clients: clients}
}

// Beside makes b, which must be new, a budget for the same connections as o. A connection that one of them closes no
// longer counts in the other, so neither closes more connections than it must.
func (b *Budget) Beside(o *Budget) *Budget {
	b.mu = o.mu
	return b
}

// Bytes returns the number of bytes that connections hold.
func (b *Budget) Bytes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// Share returns a listener like ln whose connections each hold 1 of b until they are closed. Each peer's address is a
// client.
func (b *Budget) Share(ln net.Listener) net.Listener { return wrappingListener{ln, b.Place} }

// Place returns a connection like conn that holds 1 of b until it is closed.
func (b *Budget) Place(conn net.Conn) net.Conn {
	h := b.Holder(conn, Peer(conn))
	h.Hold(1)
	return &place{Conn: conn, leave: sync.OnceFunc(func() { h.Hold(0) })}
}

type place struct {
	net.Conn
	leave func()
}

func (p *place) Close() error {
	p.leave()
	return p.Conn.Close()
}

// A Holder is a connection that holds bytes of a Budget.
type Holder struct {
	weight
	b      *Budget
	conn   io.Closer
	client netip.Addr
	beside *Holder // the holder for this connection in another budget; may be nil
	held   int     // the argument of the last Hold; weight.bytes is 0 once the budget has closed the connection
	closed bool
}

// Holder returns a holder for conn. Connections without a valid client, such as those of trusted proxies, count as one
// client, without a maximum of its own.
func (b *Budget) Holder(conn io.Closer, client netip.Addr) *Holder {
	return &Holder{b: b, conn: conn, client: client}
}

// Beside returns a holder in b for the connection of h. b must be beside h's budget.
func (h *Holder) Beside(b *Budget) *Holder {
	o := b.Holder(h.conn, h.client)
	h.beside, o.beside = o, h
	return o
}

// Hold records that h now holds this many bytes. It must not be called concurrently. If h is nil, it does nothing.
func (h *Holder) Hold(bytes int) {
	if h == nil || h.held == bytes {
		return
	}
	h.held = bytes
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.closed {
		return
	}
	b.change(h, bytes)
	c := b.clients[h.client]
	for b.mostPerClient > 0 && h.client.IsValid() && c != nil && c.bytes > b.mostPerClient {
		b.close(c.holders[0], true)
	}
	for b.most > 0 && b.bytes > b.most {
		b.relieve()
	}
}

// Relieve closes the connection that would be closed if all clients held too much.
func (b *Budget) Relieve() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.heaviest) > 0 {
		b.relieve()
	}
}

func (b *Budget) relieve() { b.close(b.heaviest[0].holders[0], false) }

// close closes the connection of h. mu must be held.
func (b *Budget) close(h *Holder, ofClient bool) {
	h.closed = true
	b.change(h, 0)
	if o := h.beside; o != nil {
		o.closed = true
		o.b.change(o, 0)
	}
	b.closed(ofClient)
	go Cut(h.conn) // may block
}

// change records that h now holds this many bytes. mu must be held.
func (b *Budget) change(h *Holder, bytes int) {
	if h.bytes == bytes {
		return
	}
	c := b.clients[h.client]
	if h.bytes == 0 {
		b.started++
		h.since = b.started
	}
	if c == nil {
		c = &client{weight: weight{since: h.since}}
		b.clients[h.client] = c
	}
	more := bytes - h.bytes
	b.bytes += more
	c.holders.set(h, bytes)
	b.heaviest.set(c, c.bytes+more)
	if c.bytes == 0 {
		delete(b.clients, h.client)
	}
}

// A weight is how much an element of a heap holds.
type weight struct {
	bytes int
	since uint64 // orders elements by when they began to hold something
	at    int    // position in the heap
}

func (w *weight) self() *weight { return w }

// heaviest is a heap of elements that hold something. The first one holds the most.
type heaviest[T interface{ self() *weight }] []T

// set changes what e holds.
func (h *heaviest[T]) set(e T, bytes int) {
	w := e.self()
	before := w.bytes
	w.bytes = bytes
	switch {
	case before == 0:
		heap.Push(h, e)
	case bytes == 0:
		heap.Remove(h, w.at)
	default:
		heap.Fix(h, w.at)
	}
}

func (h heaviest[T]) Len() int { return len(h) }

func (h heaviest[T]) Less(i, j int) bool {
	a, b := h[i].self(), h[j].self()
	return a.bytes > b.bytes || a.bytes == b.bytes && a.since < b.since
}

func (h heaviest[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].self().at, h[j].self().at = i, j
}

func (h *heaviest[T]) Push(e any) {
	e.(T).self().at = len(*h)
	*h = append(*h, e.(T))
}

func (h *heaviest[T]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	return e
}
