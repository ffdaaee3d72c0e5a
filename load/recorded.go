package load

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load/mix"
)

// A Recorded is a Source of the requests of a log. As long as all times are whole seconds, the
// requests of each second are spread over it. Clients without an address get one of fd00::/8.
type Recorded struct {
	speed   float64
	batches chan []Request
	batch   []Request
	end     context.CancelFunc
	err     error              // valid once batches is closed
	clients map[string]Request // with only the fields that depend on the client
	looks   looks

	// Of the requests that Next has returned.
	addrs  []netip.Addr // by client
	attack bool         // some are marked as attacks
}

// NewRecorded returns a source of the requests of a log, speed times as fast. If speed is zero, 1.
// The source reads until Close, which also closes the log. NewRecorded returns once the first
// requests are known; sorting a log may require reading much of it.
func NewRecorded(ctx context.Context, log *accesslog.Log, speed float64) *Recorded {
	ctx, end := context.WithCancel(ctx)
	s := &Recorded{
		speed: cmp.Or(speed, 1), batches: make(chan []Request, 16), end: end, clients: map[string]Request{}, looks: looks{},
	}
	go func() {
		defer close(s.batches)
		s.err = errors.Join(s.read(ctx, log), log.Close())
	}()
	s.batch = <-s.batches
	return s
}

// Close stops reading and returns the error of reading the log, if any.
func (s *Recorded) Close() error {
	s.end()
	for range s.batches { // until the reader has ended
	}
	if errors.Is(s.err, context.Canceled) {
		return nil
	}
	return s.err
}

// maxPerSecond is the maximum number of requests that are spread over a second. Further ones are
// due at its end.
const maxPerSecond = 1 << 20

// read sends batches of requests with the same time.
func (s *Recorded) read(ctx context.Context, log *accesslog.Log) error {
	var batch []Request
	var start, at, ahead int64 // ahead is how much of the second has been sent
	begun, whole := false, true
	pass := func() error {
		if len(batch) == 0 {
			return nil
		}
		if whole && ahead == 0 {
			for i := range batch {
				batch[i].Due += s.scaled(int64(i) * 1e6 / int64(len(batch)))
			}
		}
		select {
		case s.batches <- batch:
			batch = nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := log.Entries(ctx, func(e *accesslog.Entry) error {
		if !begun {
			begun, start, at = true, e.Time, e.Time
		}
		whole = whole && e.Time%1e6 == 0
		if e.Time != at || len(batch) == maxPerSecond {
			if err := pass(); err != nil {
				return err
			}
			ahead = 0
			if e.Time == at && whole {
				ahead = 999_999
			}
			at = e.Time
		}
		if look, ok := s.look(e); ok {
			r, known := s.clients[e.Client]
			if !known {
				r = Request{Client: uint64(len(s.clients)), Addr: e.Address().Unmap().WithZone("")}
				s.clients[strings.Clone(e.Client)] = r
			}
			r.Due, r.Look = s.scaled(e.Time-start+ahead), look
			batch = append(batch, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return pass()
}

// scaled converts a time in the log to the time when it is due.
func (s *Recorded) scaled(micros int64) time.Duration {
	return time.Duration(float64(micros) / s.speed * 1e3)
}

// look returns the look of an entry, and false if its request cannot be sent.
func (s *Recorded) look(e *accesslog.Entry) (*Look, bool) {
	if e.Method == "CONNECT" {
		return nil, false
	}
	look := Look{Method: e.Method, Host: e.Host, Target: e.Path, Status: e.Status}
	if !httpguts.ValidHeaderFieldName(look.Method) {
		look.Method = "GET"
	}
	if look.Host == "-" || strings.ContainsFunc(look.Host, unsendable) {
		look.Host = ""
	}
	if e.Attack {
		look.Component = 1
	}
	if e.Query != "" {
		look.Target += "?" + e.Query
	}
	if !strings.HasPrefix(look.Target, "/") || strings.ContainsFunc(look.Target, unsendable) {
		look.Target = "/"
	}
	for _, f := range e.Header {
		if f.Name == "User-Agent" && !strings.ContainsFunc(f.Value, func(r rune) bool { return r != ' ' && unsendable(r) }) {
			look.Agent = f.Value
		}
	}
	return s.looks.of(look), true
}

// Components returns the component log and, if requests so far are marked as attacks, the
// component attack.
func (s *Recorded) Components() []mix.Component {
	list := []mix.Component{{Name: "log"}, {Name: "attack", Attack: true}}
	if !s.attack {
		return list[:1]
	}
	return list
}

// Addr returns the address of a client.
func (s *Recorded) Addr(client uint64) netip.Addr { return s.addrs[client] }

// Next sets r to the next request.
func (s *Recorded) Next(r *Request) bool {
	for len(s.batch) == 0 {
		batch, ok := <-s.batches
		if !ok {
			return false
		}
		s.batch = batch
	}
	*r, s.batch = s.batch[0], s.batch[1:]
	if r.Client == uint64(len(s.addrs)) {
		s.addrs = append(s.addrs, r.Addr)
	}
	s.attack = s.attack || r.Look.Component == 1
	return true
}
