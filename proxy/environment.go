package proxy

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Problems that a Proxy notices, see Options.Notice.
const (
	problemUntrusted  = "untrusted_proxy"         // a proxy in front is not trusted, so its clients count as one
	problemSilent     = "proxy_without_forwarded" // a trusted proxy does not always send its clients' addresses
	problemUnexpected = "unexpected_proxy_header" // connections begin with a PROXY header, which is not expected
	ProblemReports    = "missing_reports"         // rules count answers, but the proxy that asks does not report them
)

// Problems returns the names of the problems that a Proxy notices.
func Problems() []string {
	return []string{problemUntrusted, problemSilent, problemUnexpected, ProblemReports}
}

const (
	// lookPause is the minimum time between two requests that are examined. The requests between cost one comparison.
	lookPause = 10 * time.Millisecond

	// looks is how many requests are judged together, and nearlyAll how many of them must show a problem. A proxy has at
	// most fewPeers addresses.
	looks     = 50
	nearlyAll = 45
	fewPeers  = 4

	// openings is how many connections are judged together.
	openings = 10

	// Reports are missing if at least unreported requests have passed without one for neverReported, or for notReported
	// if there was an earlier report.
	unreported    = 20
	neverReported = time.Minute
	notReported   = 10 * time.Minute

	// maxOwn is how many requests that name no client may pass from trusted proxies in a second. The problem is over
	// after noExcess seconds without more.
	maxOwn   = 5
	noExcess = 60
)

// environment detects misconfigured proxies: those in front that hide their clients, and those that ask without
// reporting answers.
type environment struct {
	note func(problem, text string) // may be nil
	next atomic.Int64               // when the next request may be examined, in Unix nanoseconds

	mu     sync.Mutex // guards the fields below
	seen   []look
	opened int // connections
	headed int // of these, the ones that began with a PROXY header

	second int64 // of the last request of a trusted proxy that names no client
	own    int   // such requests in that second
	excess int64 // the last second with too many; 0 if there was none since the problem ended

	passed  int           // examined questions since the last report, about requests that a rule counts by the answer
	since   time.Time     // of the first of these questions
	silence time.Duration // maximum time without a report; neverReported if zero
}

// A look has the properties of an examined request that reveal a proxy.
type look struct {
	peer      netip.Addr
	trusted   bool
	forwarded bool // the request has X-Forwarded-For
}

// due reports whether the request at now should be examined.
func (s *environment) due(now time.Time) bool {
	at, next := now.UnixNano(), s.next.Load()
	return at >= next && s.note != nil && s.next.CompareAndSwap(next, at+int64(lookPause))
}

// look examines a request.
func (s *environment) look(peer netip.Addr, trusted, forwarded bool) {
	s.mu.Lock()
	s.seen = append(s.seen, look{peer, trusted, forwarded})
	seen := s.seen
	if len(seen) == looks {
		s.seen = nil
	}
	s.mu.Unlock()
	if len(seen) == looks {
		s.note(problemUntrusted, untrusted(seen))
	}
}

// passOwn reports whether a trusted proxy's request that names no client, such as a health check, may pass uncounted:
// a load balancer whose health checks are refused takes the site down. Requests beyond maxOwn a second are counted for
// the proxy, since a client may have made it drop X-Forwarded-For.
func (s *environment) passOwn(now time.Time, proxy netip.Addr) bool {
	s.mu.Lock()
	if second := now.Unix(); second != s.second {
		s.second, s.own = second, 0
	}
	s.own++
	n := s.own
	if n > maxOwn {
		s.excess = s.second
	}
	s.mu.Unlock()
	if s.note != nil && n == maxOwn+1 {
		s.note(problemSilent, fmt.Sprintf("the trusted proxy %v sends no X-Forwarded-For with more than %d requests "+
			"a second, so their clients are counted as one: make it add the client's address to every request, "+
			"even if the client's Connection header names the field", proxy, maxOwn))
	}
	return n <= maxOwn
}

// settle withdraws the problem that passOwn has noted, if it is over at now.
func (s *environment) settle(now time.Time) {
	s.mu.Lock()
	over := s.excess > 0 && now.Unix()-s.excess > noExcess
	if over {
		s.excess = 0
	}
	s.mu.Unlock()
	if over && s.note != nil {
		s.note(problemSilent, "")
	}
}

// untrusted returns a description of the untrusted proxy that nearly all of the requests come from, or "".
func untrusted(seen []look) string {
	n, peers, peer := 0, map[netip.Addr]int{}, netip.Addr{} // peer is the most frequent one
	for _, l := range seen {
		if !l.trusted && l.forwarded {
			n++
			peers[l.peer]++
			if peers[l.peer] > peers[peer] {
				peer = l.peer
			}
		}
	}
	if n < nearlyAll || len(peers) > fewPeers {
		return ""
	}
	return fmt.Sprintf("nearly all requests come from %v, with X-Forwarded-For, and are counted as one client's: "+
		"if that is a proxy of yours, add it to trusted_proxy", peer)
}

// ask notes a question about a request that a rule counts by the origin's answer, so that a report should follow.
func (s *environment) ask(now time.Time) {
	s.mu.Lock()
	if s.passed == 0 {
		s.since = now
	}
	s.passed++
	missing := s.passed >= unreported && now.Sub(s.since) >= cmp.Or(s.silence, neverReported)
	s.mu.Unlock()
	if missing {
		s.note(ProblemReports, "rules count the origin's responses, but the proxy that asks about requests does not "+
			"report them, so these rules count nothing: configure its reports")
	}
}

// report records that a proxy has reported an answer.
func (s *environment) report() {
	s.mu.Lock()
	resolved := s.passed >= unreported
	s.passed, s.silence = 0, notReported
	s.mu.Unlock()
	if resolved && s.note != nil {
		s.note(ProblemReports, "")
	}
}

// proxyHeaders are the beginnings of PROXY headers of both versions.
var proxyHeaders = [][]byte{[]byte("PROXY "), []byte("\r\n\r\n\x00\r\nQUIT\n")}

// open examines the first bytes of a connection of peer.
func (s *environment) open(peer netip.Addr, first []byte) {
	if s.note == nil {
		return
	}
	headed := slices.ContainsFunc(proxyHeaders, func(h []byte) bool {
		n := min(len(h), len(first))
		return n >= 5 && bytes.Equal(first[:n], h[:n])
	})
	s.mu.Lock()
	s.opened++
	if headed {
		s.headed++
	}
	judged, all := s.opened == openings, s.headed >= openings*nearlyAll/looks
	if judged {
		s.opened, s.headed = 0, 0
	}
	s.mu.Unlock()
	switch {
	case judged && all:
		s.note(problemUnexpected, fmt.Sprintf("connections from %v begin with a PROXY header and are refused: "+
			"if that is a proxy of yours, set proxy_protocol, and add it to trusted_proxy", peer))
	case judged:
		s.note(problemUnexpected, "")
	}
}
