package proxy

import (
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/rule"
)

// An Admission is a request that a server of net/http has read, and the decision about it. Its methods must not be
// called concurrently.
type Admission struct {
	arrival
	p   *Proxy
	now time.Time // of the decision, or of the answer
}

// Admit decides whether r passes, and counts it if so. Rules that count by the answer count it when Answered is called.
func (p *Proxy) Admit(r *http.Request) *Admission {
	a := &Admission{p: p, now: p.o.Now()}
	addr, _ := netip.ParseAddrPort(r.RemoteAddr)
	a.peer = conns.AddrOf(addr)
	p.identify(&a.arrival, func() []string { return r.Header["X-Forwarded-For"] })
	req := rule.Request{Addr: a.client}
	req.Admit(r.Method, r.Host, r.RequestURI)
	req.Path, req.Query = r.URL.EscapedPath(), r.URL.RawQuery // other handlers may have changed them
	if set := p.o.Limiter.Rules(); set.ReadsFields() {
		req.Header = map[string][]string{}
		for name, values := range r.Header {
			for _, value := range values {
				set.AddField(req.Header, name, value)
			}
		}
	}
	p.decide(&a.arrival, &req, a.now)
	return a
}

// Refused reports whether the request must not be served. If so, Refuse answers it.
func (a *Admission) Refused() bool { return a.decision.Verdict.Refused() }

// Refuse answers the request as its rule specifies. For a rule with the action close, it panics with
// [http.ErrAbortHandler], so that net/http closes the connection.
func (a *Admission) Refuse(w http.ResponseWriter, r *http.Request) {
	if a.drops() {
		panic(http.ErrAbortHandler)
	}
	for _, origin := range r.Header["Origin"] {
		a.observe("Origin", origin)
	}
	a.observe("Content-Type", r.Header.Get("Content-Type"))
	var text []byte
	lines, status, body := a.p.refusal([]byte(a.p.node), &text, &a.arrival, a.now)
	discard(w, r)
	setLines(w.Header(), lines)
	bodiless := http1.IsBodiless(status)
	if !bodiless {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	if !bodiless && r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body) // the client may be gone
	}
}

// Sign sets the node's header fields in the answer to a request that passed: the client's remaining quotas and the
// name of the node.
func (a *Admission) Sign(header http.Header) {
	var buf [512]byte
	fields := a.p.o.Headers.append(buf[:0], a.p.o.Limiter, &a.decision, a.now)
	setLines(header, append(fields, a.p.node...))
}

// CountsAnswer reports whether a rule counts the request by its answer, and so needs a call of Answered.
func (a *Admission) CountsAnswer() bool { return a.decision.CountsAnswer() }

// Answered counts a request that passed, for the rules that count by the answer. It must be called at most once. It
// reports whether the answer must be withheld, because a rule now refuses the request.
func (a *Admission) Answered(status int, header http.Header) (withheld bool) {
	a.now = a.p.o.Now()
	a.p.o.Limiter.Answered(&a.decision, status, header, a.now)
	withheld = a.CountsAnswer() && a.p.o.Limiter.Withholds(&a.decision, a.client, a.now)
	if withheld {
		a.p.metrics.withheld.Inc()
	}
	return withheld
}

// Body passes the next part of the answer's body to the rules that count by it. The answer must not be withheld.
func (a *Admission) Body(part []byte) { a.decision.Body(part) }

// ReadsBody reports whether a rule needs the body.
func (a *Admission) ReadsBody() bool {
	_, reads := a.decision.AwaitsBody()
	return reads
}

// EndBody counts the request by the answer's body, which has ended or, if whole is not set, was cut off.
func (a *Admission) EndBody(whole bool) { a.p.o.Limiter.EndBody(&a.decision, whole, a.p.o.Now()) }

// setLines sets the fields in lines, each of which ends in CRLF.
func setLines(header http.Header, lines []byte) {
	for line := range strings.SplitSeq(string(lines), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			header[name] = []string{value}
		}
	}
}

// maxDiscarded is how much of an unread body is discarded to keep the connection.
const maxDiscarded = 256 << 10

// discard prepares an answer that does not wait for the request's body. If the whole body has arrived, the connection
// stays open. Otherwise it is closed after the answer.
func discard(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.Body == http.NoBody || r.Body == nil {
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(conns.Past)
	if _, expects := r.Header["Expect"]; !expects { // reading would ask for the body
		if _, err := io.CopyN(io.Discard, r.Body, maxDiscarded); err == io.EOF {
			_ = control.SetReadDeadline(time.Time{})
			return
		}
	}
	w.Header().Set("Connection", "close")
}
