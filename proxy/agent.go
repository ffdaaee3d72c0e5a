package proxy

import (
	"cmp"
	"net"
	"net/http"
	"strings"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/spop"
	"github.com/edgelimit/edge/rule"
)

// An Agent answers HAProxy over SPOP. It handles two messages, whose arguments have these names in HAProxy's
// configuration:
//
//	edge-check   method, host, path (with the query, also in absolute form), src, headers by req.hdrs_bin
//	edge-report  the same, status, the verdict of edge-check, and the value of the answer's cost header, if any
//
// The answer to edge-check sets variables: verdict; rule, if one decided; for a refusal, refused (true), status,
// retry_after and refusal_id; remember (true) if HAProxy may refuse all requests of src for two seconds without asking;
// the fields of the rule's response, such as header_vary; and the quota fields, such as ratelimit_policy. HAProxy
// prefixes them with its var-prefix.
type Agent struct{ p *Proxy }

// NewAgent returns an Agent that makes the same decisions as p.
func (p *Proxy) NewAgent() *Agent { return &Agent{p} }

// Add counts a connection like those of clients: see [spop.Options].
func (a *Agent) Add(conn net.Conn) (held *conns.Holder, ended func()) {
	return a.p.addConnection(conn, conns.Peer(conn))
}

// RefusePeer returns why peer may not ask, or "" if it may: trusted proxies and peers on Unix sockets may.
func (a *Agent) RefusePeer(peer net.Addr) string {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok || a.p.Trusts(tcp.AddrPort()) {
		return ""
	}
	a.p.undecided(undecidedPeer, a.p.o.Now(), "an address that is not a trusted proxy asked over SPOP", "peer", peer)
	return notTrusted
}

// read reads the arguments of a message.
func (a *Agent) read(m *spop.Message) (q question) {
	for i := range m.Args {
		switch v := &m.Args[i].Value; string(m.Args[i].Name) {
		case "method":
			q.req.Method = borrow(v.Bytes)
		case "host":
			q.req.Host = borrow(v.Bytes)
		case "path":
			q.target = cmp.Or(borrow(v.Bytes), "/") // for http://example.com and *, HAProxy's pathq is empty
		case "src":
			q.peer = v.Addr.Unmap()
		case "headers":
			a.readFields(&q, v.Bytes)
		case "status":
			q.status = int(min(v.Int, 1000))
		case "cost":
			if len(v.Bytes) > 0 {
				q.cost = reportedCost{string(v.Bytes)}
			}
		case "verdict":
			q.reportedVerdict = borrow(v.Bytes)
		}
	}
	q.report = string(m.Name) == "edge-report"
	return q
}

// Handle answers a message.
func (a *Agent) Handle(m *spop.Message, actions spop.Actions) {
	p, now := a.p, a.p.o.Now()
	p.note()
	q := a.read(m)
	p.identify(&q.arrival, func() []string { return q.chain })
	q.req.Addr = q.client
	switch {
	case q.req.Method == "" || q.target == "" || !q.client.IsValid():
		p.undecided(undecidedField, now, "an SPOP message has no method, path or src", "message", string(m.Name))
	case q.report || string(m.Name) == "edge-check":
		p.settle(&q, "spop", now, func() (status int, bytes int64) {
			if q.report {
				return 0, 0
			}
			if !q.trusted && q.decision.RefusesClient(now.Add(remembered)) {
				actions.SetTrue("remember")
			}
			if q.decision.Verdict.Refused() {
				spop.Headers(q.header, func(name, value []byte) { q.observe(borrow(name), borrow(value)) })
				q.grpc = "" // HAProxy answers in the client's protocol
			}
			return p.setVariables(actions, &q.arrival), 0
		})
	}
}

// readFields reads X-Forwarded-For and the fields that rules use.
func (a *Agent) readFields(q *question, bin []byte) {
	q.header = bin
	set := a.p.o.Limiter.Rules()
	if !set.ReadsFields() && a.p.trusted.Size() == 0 {
		return
	}
	q.req.Header = map[string][]string{}
	spop.Headers(bin, func(name, value []byte) {
		set.AddField(q.req.Header, borrow(name), borrow(value))
		if strings.EqualFold(borrow(name), "X-Forwarded-For") {
			q.chain = append(q.chain, borrow(value))
		}
	})
}

// setVariables sets the variables of x's decision, the most important first. It returns a refusal's status, or 200.
func (p *Proxy) setVariables(actions spop.Actions, x *arrival) (status int) {
	d := &x.decision
	var buf [512]byte
	var fields, text []byte
	now := p.o.Now()
	status = http.StatusOK
	actions.SetString("verdict", d.Verdict.String())
	if d.Verdict.Refused() {
		fields, status, _ = p.refusal(buf[:0], &text, x, now)
		actions.SetTrue("refused")
		actions.SetUint("status", uint32(status))
	} else {
		fields = p.o.Headers.append(buf[:0], p.o.Limiter, d, now)
	}
	if d.Rule != nil {
		actions.SetString("rule", d.Rule.ID)
	}
	for line := range strings.SplitSeq(borrow(fields), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok && name != "Content-Type" && name != "Cache-Control" {
			actions.SetString(variableOf(name), value)
		}
	}
	return status
}

// variableOf returns the variable's name for a field: ratelimit_policy for RateLimit-Policy; with the prefix header_
// for a field of a rule's response, such as header_vary for Vary.
func variableOf(field string) string {
	name := strings.ToLower(strings.ReplaceAll(field, "-", "_"))
	if rule.NodeSets(field) {
		return name
	}
	return "header_" + name
}
