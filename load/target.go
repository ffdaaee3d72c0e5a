package load

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
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
	return fmt.Sprintf("load: %s is %v, which is neither this machine nor on a private network", e.Target, e.Addr)
}

// ParseTarget parses http://HOST:PORT/PATH or https://… and resolves the host once, so that the
// address checked is the one used. Unless public is set, ParseTarget returns a PublicError if
// the address is neither loopback, private nor link-local.
func ParseTarget(ctx context.Context, text string, public bool) (t Target, err error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
		u.Fragment != "" || strings.ContainsFunc(u.RequestURI(), unsendable) {
		return t, fmt.Errorf("load: invalid target %q: write it as http://127.0.0.1:8080", text)
	}
	t.TLS = u.Scheme == "https"
	port := cmp.Or(u.Port(), u.Scheme)
	t.Name, t.Path = u.Host, u.RequestURI()
	if zone := strings.IndexByte(t.Name, '%'); zone >= 0 { // it is meaningless to other hosts
		t.Name = t.Name[:zone] + t.Name[strings.IndexByte(t.Name, ']'):]
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return t, fmt.Errorf("load: invalid port %q: must be 1 to 65535", port)
	}
	addr, err := lookUp(ctx, u.Hostname())
	if err != nil {
		return t, fmt.Errorf("load: cannot resolve %s: %w", u.Hostname(), err)
	}
	if !public && !addr.IsLoopback() && !addr.IsUnspecified() && !addr.IsPrivate() && !addr.IsLinkLocalUnicast() {
		return t, &PublicError{text, addr}
	}
	t.Addr = netip.AddrPortFrom(addr, uint16(number))
	return t, nil
}

// lookUp returns the address of a host. It prefers IPv4 addresses, on which nearly all servers listen.
func lookUp(ctx context.Context, host string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap(), nil // the resolver would drop its zone
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	v4 := slices.IndexFunc(found, func(a netip.Addr) bool { return a.Unmap().Is4() })
	return found[max(0, v4)].Unmap(), nil
}
