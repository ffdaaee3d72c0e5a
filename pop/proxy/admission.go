package proxy

import (
	"net/http"
	"time"
)

// An Admission is what was decided about a request that a handler other than the Proxy serves.
// Its methods must not be called concurrently.
type Admission struct {
	p  *Proxy
	x  exchange
	at time.Time
}

// Admit decides r, and counts it if it passes, as ServeHTTP does. Rules that count by the
// answer count it when Answered is called.
func (p *Proxy) Admit(r *http.Request) *Admission {
	a := &Admission{p: p, at: p.o.Now()}
	p.decideHTTP(&a.x, r, a.at)
	return a
}

// Refused reports whether the request must not be served. Then Refuse answers it.
func (a *Admission) Refused() bool { return a.x.decision.Verdict.Refused() }

// Refuse answers the request with the refusal of its rule. For a rule with the action close it
// panics with [http.ErrAbortHandler], at which net/http closes the connection.
func (a *Admission) Refuse(w http.ResponseWriter, r *http.Request) {
	a.x.header = w.Header()
	a.p.sign(&a.x)
	a.p.early(w, r)
	a.p.refuse(w, r, &a.x, a.at)
}

// Sign sets the header fields that tell the client of a request that passed what remains of its
// quotas, and the name of the node.
func (a *Admission) Sign(header http.Header) {
	a.x.header = header
	a.p.sign(&a.x)
	a.p.o.Headers.write(header, a.p.o.Limiter, &a.x.decision, a.at)
}

// CountsAnswer reports whether a rule waits for Answered.
func (a *Admission) CountsAnswer() bool { return a.x.decision.CountsAnswer() }

// Answered counts a request that passed, for the rules that count by the answer. It must be called
// once at most.
func (a *Admission) Answered(status int, header http.Header) {
	a.p.o.Limiter.Answered(&a.x.decision, status, header, a.p.o.Now())
}
