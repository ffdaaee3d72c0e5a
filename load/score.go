package load

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgelimit/edge/load/judge"
)

// JudgeOptions configures Log.Score.
type JudgeOptions = judge.Options

// Score compares the answers of a run with rules.
func (l *Log) Score(o JudgeOptions) (*judge.Score, error) {
	t := (*trace)(l)
	o.Policies = l.policies
	if l.o.Identity.sendsAddr() {
		o.Distrust = t.distrust()
	}
	return judge.Judge(t, o)
}

// A trace is a Log in the form that package judge reads.
type trace Log

// ownAddr returns the address that connections to a target come from.
func ownAddr(to netip.AddrPort) netip.Addr {
	c, err := net.Dial("udp", to.String()) // sends nothing
	if err != nil {
		return netip.IPv6Unspecified()
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// Len returns the number of requests.
func (t *trace) Len() int { return len(t.records) }

// Nodes returns the names of the nodes.
func (t *trace) Nodes() []string { return t.nodes }

// At returns the ith request.
func (t *trace) At(i int) judge.Request {
	q := &t.records[i]
	look, began := t.looks[q.look-1], t.report.Began.UnixMicro()
	r := judge.Request{
		Sent: began + q.sent, Done: began + q.done, Client: q.client, Look: uint64(q.look)<<16 | uint64(q.target),
		Attack: t.components[look.Component].Attack, Node: int(q.node),
		Answer: judge.Answer{
			Failure: q.failure, Status: int(q.status), Expected: cmp.Or(look.Status, http.StatusOK),
			Prepared: q.flags&prepared != 0, Head: look.Method == http.MethodHead,
			Retry: int(q.retry), Remaining: int(q.remaining), OtherTime: q.flags&otherTime != 0,
		},
	}
	if q.failure == judge.Closed && q.flags&reused != 0 { // perhaps because it was idle, not by a rule
		r.Answer.Failure = judge.NoAnswer
	}
	return r
}

// Properties returns the properties of the ith request. If alike, its address is the generator's, not the client's.
func (t *trace) Properties(i int, alike bool) judge.Properties {
	q := &t.records[i]
	r := Request{Client: q.client, Addr: t.o.Source.Addr(q.client), Look: t.looks[q.look-1]}
	host, target := r.Look.at(&t.o.Targets[q.target])
	p := judge.Properties{Addr: r.Addr, Method: r.Look.Method, Host: host, Target: target, Header: t.o.header(&r)}
	if alike || !t.o.Identity.sendsAddr() {
		p.Addr = t.sources[q.target]
	}
	return p
}

// distrust returns advice for a target that does not trust the clients' addresses.
func (t *trace) distrust() string {
	how, flags := "X-Forwarded-For", "--trusted-proxy "
	if t.o.Identity.Proxy != 0 {
		how, flags = "PROXY header", "--proxy-protocol --trusted-proxy "
	}
	var own []string
	for _, a := range t.sources {
		if p := netip.PrefixFrom(a, a.BitLen()).String(); !slices.Contains(own, p) {
			own = append(own, p)
		}
	}
	return "does the PoP trust this machine's " + how + "? (" + flags + strings.Join(own, ",") + ")"
}

// Name returns the name of the ith request's client.
func (t *trace) Name(i int) string {
	q := &t.records[i]
	if id := t.o.Identity; !id.sendsAddr() && (id.Header != "" || id.Cookie != "") {
		return string(appendKey(nil, q.client))
	}
	return t.o.Source.Addr(q.client).String()
}
