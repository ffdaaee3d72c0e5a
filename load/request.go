package load

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/load/mix"
)

// A Request is a request to be sent.
type Request struct {
	Due    time.Duration // since the start of the run
	Client uint64
	Addr   netip.Addr // of the client
	Look   *Look
}

// A Look holds the properties that requests have in common. Requests of a source that look alike
// share one Look, which must not be modified.
type Look struct {
	Component int // index in [Source.Components]
	Method    string
	Host      string // if empty, the target's
	Target    string // path and query
	Agent     string // User-Agent; not sent if empty
	Status    int    // of the origin's answer, as far as known; 200 if zero

	number uint32 // index in run.looks, from 1
}

// A looks holds the looks of a source.
type looks map[Look]*Look

// of returns the look that is equal to look.
func (l looks) of(look Look) *Look {
	known := l[look]
	if known == nil {
		look.Method, look.Host, look.Target, look.Agent = strings.Clone(look.Method), strings.Clone(look.Host),
			strings.Clone(look.Target), strings.Clone(look.Agent)
		known = &look
		l[look] = known
	}
	return known
}

// at returns the host, and the path and query, of requests to t.
func (l *Look) at(t *Target) (host, target string) {
	return cmp.Or(l.Host, t.Name), cmp.Or(l.Target, t.Path)
}

// Check returns an error if l does not describe valid requests.
func (l *Look) Check() error {
	switch {
	case !httpguts.ValidHeaderFieldName(l.Method) || l.Method == "CONNECT":
		return fmt.Errorf("load: invalid method %q", l.Method)
	case strings.ContainsFunc(l.Host, unsendable) || strings.ContainsAny(l.Host, "/?#@"):
		return fmt.Errorf("load: invalid host %q", l.Host)
	case l.Target != "" && l.Target[0] != '/' || strings.ContainsFunc(l.Target, unsendable):
		return fmt.Errorf("load: invalid path %q: must begin with / and have no spaces", l.Target)
	}
	return nil
}

// A Source generates requests in the order in which they are due. It is called by one goroutine at
// a time. If it has a method Begin(time.Time), Run calls it with the time of its start before Next.
type Source interface {
	Components() []mix.Component

	// Addr returns the address of a client that has sent a request.
	Addr(client uint64) netip.Addr

	// Next sets r to the next request, and returns false if none is left.
	Next(r *Request) bool
}
