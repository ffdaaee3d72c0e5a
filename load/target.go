package load

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// A Target is the destination of connections: a node, or an address with nodes behind it.
type Target struct {
	Name string // host:port, as given
	Addr netip.AddrPort
	TLS  bool
	Path string // of requests without a path
}

// A PublicError reports that a target is neither on this machine nor in a private network.
type PublicError struct {
	Target string
	Addr   netip.Addr
}

func (e *PublicError) Error() string {
	return fmt.Sprintf("load: %s is %v, which is neither this machine nor in a private network", e.Target, e.Addr)
}

// ParseTarget parses http://HOST:PORT/PATH or https://… and resolves the host. If it has several
// addresses, the first that accepts connections is used. The address does not change later, so that
// the address checked is the one loaded. Unless public is set, ParseTarget returns a PublicError if
// the address is neither loopback, private nor link-local.
func ParseTarget(ctx context.Context, text string, public bool) (t Target, err error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Fragment != "" || strings.ContainsFunc(u.RequestURI(), unsendable) {
		return t, fmt.Errorf("load: invalid target %q: write it as http://127.0.0.1:8080", text)
	}
	t.TLS = u.Scheme == "https"
	port := u.Port()
	if port == "" {
		port = map[bool]string{false: "80", true: "443"}[t.TLS]
	}
	t.Name, t.Path = u.Host, u.RequestURI()
	if zone := strings.IndexByte(t.Name, '%'); zone >= 0 { // it is meaningless to other hosts
		t.Name = t.Name[:zone] + t.Name[strings.IndexByte(t.Name, ']'):]
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return t, fmt.Errorf("load: invalid port %q: must be 1 to 65535", port)
	}
	found, err := lookUp(ctx, u.Hostname())
	if err != nil {
		return t, fmt.Errorf("load: cannot find %s: %w", u.Hostname(), err)
	}
	addrs := make([]netip.AddrPort, len(found))
	for i, a := range found {
		if a = a.Unmap(); !public && !ours(a) {
			return t, &PublicError{text, a}
		}
		addrs[i] = netip.AddrPortFrom(a, uint16(number))
	}
	t.Addr = firstAccepting(ctx, addrs)
	return t, nil
}

// lookUp resolves a host.
func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil // the resolver would drop its zone
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// firstAccepting returns the first address that accepts connections, or else the first one.
func firstAccepting(ctx context.Context, addrs []netip.AddrPort) netip.AddrPort {
	if len(addrs) == 1 {
		return addrs[0]
	}
	dialer := net.Dialer{Timeout: time.Second}
	for _, a := range addrs {
		if c, err := dialer.DialContext(ctx, "tcp", a.String()); err == nil {
			c.Close()
			return a
		}
	}
	return addrs[0]
}

// ours reports whether a belongs to this machine or a private network.
func ours(a netip.Addr) bool {
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsUnspecified()
}
