package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// Options say what is sent where, and how. Targets and Source are required; the zero value of
// every other field is usable.
type Options struct {
	// Targets are where connections go.
	Targets []Target

	// Source makes the requests.
	Source Source

	// Hashed lets all requests of a client go to the same target. If false they go to any.
	Hashed bool

	// ClosedLoop sends as much as the connections carry, whenever requests are due.
	ClosedLoop bool

	// Duration bounds the run. If zero, 10 s.
	Duration time.Duration

	// Requests bounds how many are sent. If zero, a million.
	Requests uint64

	// Connections is how many there are at most at a time, to all targets together. If
	// zero, 64.
	Connections int

	// KeepAlive is how many requests a connection carries. If zero, there is no bound but
	// the target's.
	KeepAlive int

	// HTTP2 speaks HTTP/2, with Streams requests at a time on each connection. If Streams
	// is zero, 1.
	HTTP2   bool
	Streams int

	// TLS is how https targets are spoken with. If nil, as the system trusts.
	TLS *tls.Config

	// Identity is how clients are told apart.
	Identity Identity

	// Timeout bounds a request and a dial. If zero, 5 s.
	Timeout time.Duration

	// NodeHeader is the response header that names the node. If empty, X-Edge-Node. Where
	// it is missing, the target stands for the node.
	NodeHeader string

	// Header are more lines for each request.
	Header [][2]string

	// Body is what each request carries whose method lets it: see CarriesBody.
	Body []byte

	// Bodies are what rules answer with that do not say that they refuse: an answer with
	// one of them is a refusal, whatever its status.
	Bodies [][]byte

	// Return lets some of the clients that are refused be silent until their Retry-After is
	// over, and come back then. With ClosedLoop nobody does.
	Return bool

	// Dial connects to a target. If nil, by TCP to its address.
	Dial func(ctx context.Context, t *Target) (net.Conn, error)

	// Progress is called ProgressesPerSecond times if it is not nil.
	Progress func(Progress)

	nap func(time.Duration) // sleeps for less than some milliseconds
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case len(o.Targets) == 0 || len(o.Targets) > 1<<15:
		return o, errors.New("load: a run needs 1 to 32,768 targets")
	case o.Source == nil:
		return o, errors.New("load: a run needs a source")
	case o.Duration < 0 || o.Connections < 0 || o.KeepAlive < 0 || o.Streams < 0 || o.Timeout < 0:
		return o, errors.New("load: durations and numbers must not be negative")
	case o.HTTP2 && o.Identity.Proxy != 0:
		return o, errors.New("load: the PROXY protocol works with HTTP/1.1 only")
	}
	o.Duration = cmp.Or(o.Duration, 10*time.Second)
	o.Requests = cmp.Or(o.Requests, 1_000_000)
	o.Connections = cmp.Or(o.Connections, 64)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.Streams = cmp.Or(o.Streams, 1)
	o.NodeHeader = cmp.Or(o.NodeHeader, "X-Edge-Node")
	if o.TLS == nil {
		o.TLS = &tls.Config{}
	}
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	if o.nap == nil {
		o.nap = nap
		if runtime.GOMAXPROCS(0) == 1 {
			o.nap = time.Sleep // connections need the processor meanwhile
		}
	}
	if o.Hashed && o.Connections < len(o.Targets) {
		return o, fmt.Errorf("load: %d connections are too few for %d targets", o.Connections, len(o.Targets))
	}
	if !o.HTTP2 {
		o.Streams = 1
	}
	return o, nil
}

// dialTCP connects to a target.
func dialTCP(ctx context.Context, t *Target) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", t.Addr.String())
}

// A run is what goes on while requests are sent.
type run struct {
	o       Options
	began   time.Time
	asked   context.Context // done when it is interrupted
	over    context.Context // done when nothing is sent any more
	end     context.CancelFunc
	cut     context.Context // done when what is under way ends too
	cutNow  context.CancelFunc
	fixed   []byte // header lines of all requests
	source  *drawn
	lanes   []*lane
	returns returns
	looks   []*Look
	nodes   nodes
	opened  atomic.Uint64
	unsent  atomic.Uint64
	late    atomic.Uint64 // requests that were ready to be sent too late
	working sync.WaitGroup
	giveUp  atomic.Int64 // when it ends unless something is answered before; 0 as long as nothing failed

	// For the watchdog alone, until the run is over.
	ended  int64 // when it was interrupted
	heard  bool  // something was answered
	gaveUp bool

	mu     sync.Mutex // guards what follows
	conns  []*conn
	shared map[feed]*http2Conn // the last one of each feed
	why    [failures]string    // the first error of each kind
}

// now is the time since the beginning, in microseconds.
func (r *run) now() int64 { return time.Since(r.began).Microseconds() }

// isOver reports whether nothing is sent any more. The deadline of a dial may pass before over is
// done.
func (r *run) isOver() bool {
	end, _ := r.over.Deadline()
	return r.over.Err() != nil || !time.Now().Before(end)
}

// nodes number the names of nodes. Those of the targets come first, as in Options.Targets: a
// target stands for the node where that has no name.
type nodes struct {
	mu      sync.Mutex
	targets int
	names   []string
}

// mostNodes is how many names of nodes are kept. Further names are ignored.
const mostNodes = 1000

// named returns the number of a node that says its name, or else if there are too many.
func (n *nodes) named(name string, or uint16) uint16 {
	name = printable(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.Index(n.names[n.targets:], name)
	if i < 0 {
		if i = len(n.names) - n.targets; i == mostNodes {
			return or
		}
		n.names = append(n.names, name)
	}
	return uint16(n.targets + i)
}

// printable returns what a target said in a way that may be shown: without control characters,
// and not at length.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
	if letters := []rune(s); len(letters) > 200 {
		return string(letters[:200]) + "…"
	}
	return s
}

// Run sends what o says, waits for the answers, and returns what became of it. It ends early,
// within a second or two, when ctx is done; what was done until then is returned as well.
//
// It sends nothing, and returns an UnreachableError for each target, if none takes a connection
// within 3 s. It gives up if nothing at all is answered: after Options.Timeout, or 1 s after the
// first request that failed otherwise.
func Run(ctx context.Context, o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &run{o: o, asked: ctx, fixed: fixedHeader(o.Header), shared: map[feed]*http2Conn{}}
	r.cut, r.cutNow = context.WithCancel(context.Background())
	defer r.cutNow()
	r.source = &drawn{run: r, source: o.Source}
	r.returns = returns{run: r, enabled: o.Return && !o.ClosedLoop, clients: map[uint64]*returning{}}
	r.nodes.targets = len(o.Targets)
	for _, t := range o.Targets {
		r.nodes.names = append(r.nodes.names, t.Name)
	}
	if err := r.reach(); err != nil {
		return nil, err
	}
	over, end := context.WithTimeout(ctx, o.Duration)
	defer end()
	r.over, r.end = over, end
	r.opened.Store(0)
	r.began = time.Now()
	if s, ok := o.Source.(interface{ Begin(time.Time) }); ok {
		s.Begin(r.began)
	}
	r.start()
	watching, unwatch := context.WithCancel(context.Background())
	var watchdog sync.WaitGroup
	watchdog.Go(func() { r.watch(watching) })
	r.working.Wait()
	log := r.log()
	log.Interrupted = ctx.Err() != nil
	end()
	r.returns.timers.Wait()
	unwatch()
	watchdog.Wait()
	log.GaveUp = r.gaveUp
	return log, nil
}

// start starts what sends.
func (r *run) start() {
	switch {
	case r.o.Identity.Proxy != 0: // a client meets its connection again
		for range r.o.Connections {
			r.addLane(1, -1)
		}
	case r.o.Hashed:
		for i := range r.o.Targets {
			r.addLane(max(1, (r.o.Connections+i)/len(r.o.Targets)), i)
		}
	case r.o.ClosedLoop:
		for range r.o.Connections * r.o.Streams {
			r.open(r.source, -1)
		}
		return
	default:
		r.addLane(r.o.Connections, -1)
	}
	r.working.Go(r.dispatch)
}

// addLane adds a lane whose connections go to a target, or to any.
func (r *run) addLane(connections, target int) {
	l := newLane(r, connections*r.o.Streams, func(l *lane) { r.open(l, target) })
	r.lanes = append(r.lanes, l)
}

// open starts another connection, or another stream of one.
func (r *run) open(from feed, target int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &conn{run: r, from: from, target: target, random: rand.New(rand.NewPCG(1, uint64(len(r.conns))))}
	if r.o.HTTP2 {
		shared := r.shared[from]
		if shared == nil || shared.streams == r.o.Streams {
			shared = newHTTP2(r, target, c.random)
			r.shared[from] = shared
		}
		shared.streams++
		c.http2 = shared
	}
	r.conns = append(r.conns, c)
	r.working.Go(c.work)
}

// finish says that there will be nothing more to send.
func (r *run) finish() {
	for _, l := range r.lanes {
		l.finish()
	}
}

// ProgressesPerSecond is how often Options.Progress is called.
const ProgressesPerSecond = 2

const ticksPerSecond = 10 // of the watchdog

// watch ends what takes too long, and shows progress.
func (r *run) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second / ticksPerSecond)
	defer tick.Stop()
	var before [128]uint32
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		oldest := r.now() - r.o.Timeout.Microseconds()
		if r.over.Err() != nil {
			r.finish() // wakes those that wait
		}
		if r.asked.Err() != nil { // what is under way has another second
			r.ended = cmp.Or(r.ended, r.now())
			if r.now()-r.ended > time.Second.Microseconds() {
				oldest = r.now()
				r.cutNow()
			}
		}
		r.mu.Lock()
		conns := r.conns
		r.mu.Unlock()
		if r.unheard(conns) {
			r.gaveUp, oldest = true, r.now()
			r.end()
			r.cutNow()
		}
		for _, c := range conns {
			c.watch(oldest)
		}
		if r.o.Progress != nil && i%(ticksPerSecond/ProgressesPerSecond) == 0 {
			r.o.Progress(r.progress(&before))
		}
	}
}

// unheard reports whether to give up, since nothing was ever answered.
func (r *run) unheard(conns []*conn) bool {
	r.heard = r.heard || slices.ContainsFunc(conns, func(c *conn) bool { return c.live.requests.Load() > c.live.failed.Load() })
	at := r.giveUp.Load()
	return !r.heard && at > 0 && r.now() >= at
}
