package load

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// A Request is one that is to be sent.
type Request struct {
	Due    time.Duration // since the beginning of the run
	Client uint64
	Addr   netip.Addr // of the client
	Look   *Look
	probe  bool // it comes back when Retry-After is over
}

// A Look is what requests have in common. Those of a source that look alike share one, which
// does not change.
type Look struct {
	Component int // index in [Source.Components]
	Method    string
	Host      string // if empty, that of the target
	Target    string // path and query
	Agent     string // User-Agent; none if empty
	Status    int    // what the origin answers, as far as is known; 200 if zero

	number uint32 // in the run, from 1
}

// Check says whether l makes requests.
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

// A Component is a part of the traffic.
type Component struct {
	Name   string `json:"name"`
	Attack bool   `json:"attack"` // meant to be refused
}

// A Source makes requests in the order in which they are due. It is called by one goroutine at
// a time. One that has a method Begin(time.Time) is told when the run begins, before Next.
type Source interface {
	Components() []Component

	// Addr returns the address of a client. It may be called beside Next.
	Addr(client uint64) netip.Addr

	// Next makes the next request into r, and reports false where none is left.
	Next(r *Request) bool
}
