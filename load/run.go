package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/tick"
)

// Options configures Run. Targets and Source are required; the zero value of every other field is
// usable.
type Options struct {
	// Targets are the targets of connections.
	Targets []Target

	// Source generates the requests.
	Source Source

	// Hashed sends all requests of a client to the same target. If false, they go to any.
	Hashed bool

	// ClosedLoop sends as many requests as the connections can carry, regardless of when they
	// are due.
	ClosedLoop bool

	// Duration is the maximum duration of the run. If zero, 10 s.
	Duration time.Duration

	// Requests is the maximum number of requests sent. If zero, there is no limit. The log of a
	// run takes 64 bytes of memory for each request.
	Requests uint64

	// Connections is the maximum number of open connections across all targets. If zero,
	// 64.
	Connections int

	// KeepAlive is the maximum number of requests per connection. If zero, only the target
	// limits it.
	KeepAlive int

	// HTTP2 makes Run use HTTP/2, with up to Streams concurrent requests per connection. If
	// Streams is zero, 1.
	HTTP2   bool
	HTTP3   bool // instead of HTTP/2
	Streams int

	// TLS configures connections to https targets. If nil, the system's roots are trusted.
	TLS *tls.Config

	// Identity specifies how requests identify their client.
	Identity Identity

	// Timeout bounds a request and a dial. If zero, 5 s.
	Timeout time.Duration

	// NodeHeader is the response header that names the node. If empty, X-Edge-Node. For answers
	// without it, the target's name is used.
	NodeHeader string

	// Header holds additional header lines for each request. A Host replaces that of the requests.
	Header [][2]string
	host   string // from Header

	// Body is the body of requests whose method allows one: see CarriesBody.
	Body []byte

	// Bodies are the bodies of rules whose responses do not show that they refuse. An answer
	// with one of them is a refusal, whatever its status.
	Bodies [][]byte

	// Return silences some of the refused clients until their Retry-After has elapsed, and then
	// lets them return. It has no effect with ClosedLoop.
	Return bool

	// Dial connects to a target. If nil, Run connects to its address over TCP.
	Dial func(ctx context.Context, t *Target) (net.Conn, error)

	// Progress, if not nil, is called ProgressesPerSecond times a second.
	Progress func(Progress)
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case len(o.Targets) == 0 || len(o.Targets) > 1<<15:
		return o, errors.New("load: a run needs 1 to 32,768 targets")
	case o.Source == nil:
		return o, errors.New("load: a run needs a source")
	case o.Duration < 0 || o.Connections < 0 || o.KeepAlive < 0 || o.Streams < 0 || o.Timeout < 0:
		return o, errors.New("load: durations and counts must not be negative")
	case (o.HTTP2 || o.HTTP3) && o.Identity.Proxy != 0:
		return o, errors.New("load: the PROXY protocol works with HTTP/1.1 only")
	case o.HTTP3 && o.KeepAlive > 0:
		return o, errors.New("load: an HTTP/3 connection has no maximum number of requests")
	case o.HTTP3 && slices.ContainsFunc(o.Targets, func(t Target) bool { return !t.TLS }):
		return o, errors.New("load: HTTP/3 needs targets that begin with https://")
	}
	o.HTTP2 = o.HTTP2 || o.HTTP3
	o.Duration = cmp.Or(o.Duration, 10*time.Second)
	o.Requests = cmp.Or(o.Requests, math.MaxUint64)
	o.Connections = cmp.Or(o.Connections, 64)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.Streams = cmp.Or(o.Streams, 1)
	o.NodeHeader = cmp.Or(o.NodeHeader, "X-Edge-Node")
	if o.TLS == nil {
		o.TLS = &tls.Config{}
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, t *Target) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", t.Addr.String())
		}
	}
	if o.Hashed && o.Connections < len(o.Targets) {
		return o, fmt.Errorf("load: %d connections are too few for %d targets", o.Connections, len(o.Targets))
	}
	if !o.HTTP2 {
		o.Streams = 1
	}
	o.Return = o.Return && !o.ClosedLoop
	if i := slices.IndexFunc(o.Header, func(h [2]string) bool { return strings.EqualFold(h[0], "Host") }); i >= 0 {
		o.host, o.Header = o.Header[i][1], slices.Delete(slices.Clone(o.Header), i, i+1)
	}
	return o, nil
}

// A run is the state of Run.
type run struct {
	o       Options
	nap     func(time.Duration) // sleeps for less than a few milliseconds
	began   time.Time
	caller  context.Context // done when the run is interrupted
	over    context.Context // done when no more requests are sent
	end     context.CancelFunc
	cut     context.Context // done when requests in flight are aborted
	cutNow  context.CancelFunc
	queues  []*dueQueue
	returns returns
	live    liveStats
	opened  atomic.Uint64 // number of connections
	unsent  atomic.Uint64 // requests that were due, but not sent
	late    atomic.Uint64 // requests that were dispatched late
	working sync.WaitGroup
	gaveUp  atomic.Bool // no request was answered

	firstFailure sync.Once // schedules giveUp

	// Used by dispatch only:
	made  uint64 // number of requests so far
	full  bool   // the source has more than Options.Requests
	looks []*Look

	mu       sync.Mutex // guards the following
	conns    []*conn
	examples map[string]string // as Report.Examples
	policies map[string]bool   // at most maxPolicies

	// nodes holds the names of nodes. Those of the targets come first, as in Options.Targets: they stand for nodes that
	// do not give a name.
	nodes []string
}

// maxPolicies is the maximum number of different RateLimit-Policy fields that are kept.
const maxPolicies = 1000

// note keeps a RateLimit-Policy.
func (r *run) note(policy []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.policies) < maxPolicies && !r.policies[string(policy)] {
		r.policies[string(policy)] = true
	}
}

// now returns the time since the start of the run, in microseconds.
func (r *run) now() int64 { return time.Since(r.began).Microseconds() }

// isOver reports whether no more requests are sent. It also checks the deadline, because a dial may
// fail at the deadline before over is done.
func (r *run) isOver() bool {
	end, _ := r.over.Deadline()
	return r.over.Err() != nil || !time.Now().Before(end)
}

// maxNodes is the maximum number of node names. Further names are ignored.
const maxNodes = 1000

// nodeNamed returns the index of the named node, or fallback if there are too many nodes.
func (r *run) nodeNamed(name string, fallback uint16) uint16 {
	name = shortened(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	targets := len(r.o.Targets)
	i := slices.Index(r.nodes[targets:], name)
	if i < 0 {
		if i = len(r.nodes) - targets; i == maxNodes {
			return fallback
		}
		r.nodes = append(r.nodes, name)
	}
	return uint16(targets + i)
}

// shortened makes text from a target fit for display.
func shortened(text string) string {
	text = prose.Printable(text)
	if letters := []rune(text); len(letters) > 200 {
		return string(letters[:200]) + "…"
	}
	return text
}

// Run sends the requests of o.Source, waits for the answers, and returns a log of the outcomes. If
// ctx is done, Run ends within a second or two and returns the outcomes so far.
//
// If no target accepts a connection within 3 s, Run sends nothing and returns an error. It gives up if no
// request at all is answered: after Options.Timeout, or 1 s after the first request that failed for another
// reason.
func Run(ctx context.Context, o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &run{o: o, nap: nap, caller: ctx, live: liveStats{latencies: newHistogram(1)},
		examples: map[string]string{}, policies: map[string]bool{}}
	if runtime.GOMAXPROCS(0) == 1 {
		r.nap = time.Sleep // connections need the only processor
	}
	r.cut, r.cutNow = context.WithCancel(context.Background())
	defer r.cutNow()
	r.returns = returns{run: r, clients: map[uint64]*refusedClient{}}
	r.nodes = prose.Texts(o.Targets, func(t Target) string { return t.Name })
	if err := r.reach(); err != nil {
		return nil, err
	}
	r.over, r.end = context.WithTimeout(ctx, o.Duration)
	defer r.end()
	r.opened.Store(0)
	r.began = time.Now()
	if s, ok := o.Source.(interface{ Begin(time.Time) }); ok {
		s.Begin(r.began)
	}
	r.start()
	defer context.AfterFunc(r.over, r.finish)() // wakes waiting connections
	defer context.AfterFunc(ctx, func() { time.AfterFunc(graceOfRequests, r.cutNow) })()
	showing, hide := context.WithCancel(context.Background())
	var shown sync.WaitGroup
	if o.Progress != nil {
		shown.Go(func() {
			tick.Every(showing, time.Second/ProgressesPerSecond, func() { o.Progress(r.progress()) })
		})
	}
	r.working.Wait()
	elapsed := time.Since(r.began)
	r.end()
	r.returns.timers.Wait()
	hide()
	shown.Wait()
	return r.log(elapsed), nil
}

// start starts the goroutines that send.
func (r *run) start() {
	switch {
	case r.o.Identity.Proxy != 0: // a client always uses its own connection
		for range r.o.Connections {
			r.addQueue(1, -1)
		}
	case r.o.Hashed:
		for i := range r.o.Targets {
			r.addQueue(max(1, (r.o.Connections+i)/len(r.o.Targets)), i)
		}
	default:
		r.addQueue(r.o.Connections, -1)
	}
	r.working.Go(r.dispatch)
}

// open starts another connection, or another stream of an existing one.
func (r *run) open(from *dueQueue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &conn{run: r, from: from, random: rand.New(rand.NewPCG(1, uint64(len(r.conns))))}
	if r.o.HTTP2 {
		if from.http2 == nil || from.http2.streams == r.o.Streams {
			from.http2 = newHTTP2(r, from.target, c.random)
		}
		from.http2.streams++
		c.http2, c.to = from.http2, from.http2.target
	}
	r.conns = append(r.conns, c)
	r.working.Go(c.work)
}

// finish announces to all queues that there will be no more requests.
func (r *run) finish() {
	for _, l := range r.queues {
		l.finish()
	}
}

// ProgressesPerSecond is how often Options.Progress is called per second.
const ProgressesPerSecond = 2

// graceOfRequests is how long requests in flight may take when a run is interrupted.
const graceOfRequests = time.Second

// giveUp ends the run unless any request has been answered.
func (r *run) giveUp() {
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	if r.live.counts.Requests == r.live.counts.Failed {
		r.gaveUp.Store(true)
		r.end()
		r.cutNow()
	}
}
