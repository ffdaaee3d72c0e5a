package pop

import (
	"net"

	"github.com/pires/go-proxyproto"
)

// withProxyProtocol lets trusted proxies say which client they speak for. A header from any
// other peer is not understood, so that its request is malformed.
func (n *Node) withProxyProtocol(ln net.Listener) net.Listener {
	return &proxyproto.Listener{
		Listener:          ln,
		ReadHeaderTimeout: n.o.ReadHeaderTimeout,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			tcp, ok := o.Upstream.(*net.TCPAddr)
			if ok && n.trusts(tcp) {
				return proxyproto.USE, nil
			}
			return proxyproto.SKIP, nil
		},
		ValidateHeader: n.withoutUnix,
	}
}

// withoutUnix reads a header with UNIX addresses as if it had none: it does not tell clients
// apart, but X-Forwarded-For of the proxy, which is then the peer, may.
func (n *Node) withoutUnix(h *proxyproto.Header) error {
	if !h.TransportProtocol.IsUnix() {
		return nil
	}
	h.Command = proxyproto.LOCAL
	n.metrics.unixSources.Inc()
	n.unixSource.Do(func() {
		n.o.Logger.Warn("a trusted proxy sends PROXY headers with UNIX addresses: its clients are told apart by X-Forwarded-For only; let it accept clients by TCP, or send X-Forwarded-For")
	})
	return nil
}

func (n *Node) trusts(addr *net.TCPAddr) bool {
	ip := addr.AddrPort().Addr().Unmap().WithZone("")
	for _, prefix := range n.o.TrustedProxies {
		if prefix.Contains(ip) {
			return true
		}
	}
	return false
}
