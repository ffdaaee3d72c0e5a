package proxy

import (
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
	"github.com/edgelimit/edge/pop/spop"
)

// An Agent answers HAProxy's questions by SPOP. There are two messages, with arguments
// that HAProxy's configuration names:
//
//	edge-check   method, host, path with the query, src, headers by req.hdrs_bin
//	edge-report  the same, status, the verdict of edge-check, and the cost header of the answer, if any
//
// The answer to edge-check sets variables: verdict, and for a refusal refused (true), status, and
// retry_after and refusal_id; rule, if one decided; and the quota fields, such as ratelimit_policy. HAProxy puts its
// var-prefix before them.
type Agent struct{ p *Proxy }

// NewAgent returns an Agent that decides as p does.
func (p *Proxy) NewAgent() *Agent { return &Agent{p} }

// RefusePeer returns why a peer may not ask, or nothing: trusted proxies and Unix sockets may.
func (a *Agent) RefusePeer(peer net.Addr) string {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok || a.p.Trusts(tcp.AddrPort()) {
		return ""
	}
	a.p.metrics.undecided[undecidedPeer].Inc()
	a.p.warnings.Log(a.p.o.Logger, slog.LevelWarn, a.p.o.Now(), "an address that is not a trusted proxy asked by SPOP", "peer", peer)
	return "this address is not a trusted proxy: add it to the node's trusted_proxy"
}

// Handle answers a message.
func (a *Agent) Handle(m *spop.Message, actions *spop.Actions) {
	p, now := a.p, a.p.o.Now()
	var req rule.Request
	var status int
	var verdict string
	var cost reported
	target := ""
	for i := range m.Args {
		switch v := &m.Args[i].Value; m.Args[i].Name {
		case "method":
			req.Method = borrow(v.Bytes)
		case "host":
			req.Host = borrow(v.Bytes)
		case "path":
			target = borrow(v.Bytes)
		case "src":
			req.Addr = v.Addr().Unmap()
		case "headers":
			req.Header = a.headers(v.Bytes)
		case "status":
			status = int(min(v.Int, 1000))
		case "cost":
			if len(v.Bytes) > 0 {
				cost = reported{string(v.Bytes)}
			}
		case "verdict":
			verdict = borrow(v.Bytes)
		}
	}
	if p.trusted.Contains(req.Addr) { // HAProxy is behind another proxy
		req.Addr = p.client(req.Addr, req.Header["X-Forwarded-For"])
	}
	if req.Method == "" || target == "" || !req.Addr.IsValid() {
		p.metrics.undecided[undecidedField].Inc()
		p.warnings.Log(p.o.Logger, slog.LevelWarn, now, "an SPOP message has no method, path or src", "message", m.Name)
		return
	}
	req.Path, req.Query, _ = strings.Cut(target, "?")
	req.Borrowed = true
	req.Malformed = !validHost(req.Host) || !validEscapes(req.Path)
	switch m.Name {
	case "edge-check":
	case "edge-report":
		if !limit.Refused(verdict) {
			p.o.Limiter.Report(&req, status, cost, now)
		}
		return
	default:
		return
	}
	if req.Path != "*" && (req.Path == "" || req.Path[0] != '/') {
		req.Malformed = true
	}
	line := requestLine{}
	if p.o.AccessLog != nil {
		line = requestLine{strings.Clone(req.Method), strings.Clone(req.Host), strings.Clone(target), "spop"}
	}
	x := arrival{client: req.Addr, decision: p.o.Limiter.Decide(&req, now)}
	code := p.setVariables(actions, &x)
	if p.o.AccessLog != nil {
		p.logRequest(&x, now, line, code, 0)
	}
}

// headers returns the fields for rules, nil if they read none.
func (a *Agent) headers(bin []byte) map[string][]string {
	if !a.p.o.Limiter.Rules().ReadsFields() && a.p.trusted.Size() == 0 {
		return nil
	}
	header := map[string][]string{}
	spop.Headers(bin, func(name, value []byte) {
		canonical := textproto.CanonicalMIMEHeaderKey(string(name))
		header[canonical] = append(header[canonical], string(value))
	})
	return header
}

// setVariables tells HAProxy of the decision, the most important first. It returns the status of a refusal, or 200.
func (p *Proxy) setVariables(actions *spop.Actions, x *arrival) (status int) {
	d := &x.decision
	var buf [512]byte
	var fields, text []byte
	now := p.o.Now()
	status = http.StatusOK
	actions.SetString("verdict", d.Verdict.String())
	if d.Verdict.Refused() {
		fields, status, _ = p.refusal(buf[:0], &text, x, now)
		actions.SetBool("refused", true)
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

// variableOf returns the variable for a field: ratelimit_policy for RateLimit-Policy.
func variableOf(field string) string {
	return strings.ToLower(strings.ReplaceAll(field, "-", "_"))
}
