package proxy

import (
	"net/netip"
	"strings"
	"time"

	"github.com/edgelimit/edge/rule"
)

// Trusts reports whether addr is the address of a trusted proxy.
func (p *Proxy) Trusts(addr netip.AddrPort) bool { return p.trusted.Contains(addrOf(addr)) }

// identify sets x's client, from its peer and the values of X-Forwarded-For, and whether the request is the peer's own.
func (p *Proxy) identify(x *arrival, forwarded func() []string) {
	x.trusted, x.client = p.trusted.Contains(x.peer), p.o.Client.Unmap(x.peer)
	if x.trusted {
		chain := forwarded()
		x.own, x.client = len(chain) == 0, p.client(x.client, chain)
	}
}

// decide makes the decision for req, the request of x.
func (p *Proxy) decide(x *arrival, req *rule.Request, now time.Time) {
	own := x.own && !req.Malformed && p.o.Limiter.Rules().Access(x.client) != rule.Denied
	if own && p.environment.passOwn(now, x.client) {
		x.decision = p.o.Limiter.Exempt(req)
	} else {
		p.o.Limiter.DecideTo(&x.decision, req, now)
	}
	if now.Nanosecond()&63 == 0 { // occasionally: reading the clock costs as much as the decision
		p.metrics.decision.Observe(p.o.Now().Sub(now).Seconds())
		p.environment.settle(now)
	}
}

// client returns the rightmost address in forwarded, the lines of X-Forwarded-For, that is not a trusted proxy. It
// treats the lines as one list and reads at most maxHops elements. It stops at an element that is not an address: the
// client is then the trusted proxy to the right, since only that proxy vouches for this element. If there is no
// element, the client is peer.
func (p *Proxy) client(peer netip.Addr, forwarded []string) netip.Addr {
	client, hops := peer, 0
	for i := len(forwarded) - 1; i >= 0; i-- {
		for rest, more := forwarded[i], true; more; hops++ {
			if hops == maxHops {
				return client
			}
			var last string
			if at := strings.LastIndexByte(rest, ','); at >= 0 {
				rest, last = rest[:at], rest[at+1:]
			} else {
				last, more = rest, false
			}
			addr, ok := forwardedAddr(strings.Trim(last, " \t"))
			if !ok {
				return client
			}
			client = p.o.Client.Unmap(addr)
			if !p.trusted.Contains(addr) {
				return client
			}
		}
	}
	return client
}

// maxHops is the maximum number of trusted proxies that a request comes through. A longer list is forged.
const maxHops = 64

// forwardedAddr parses an element of X-Forwarded-For, to which some proxies add the port.
func forwardedAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		withPort, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), true
}
