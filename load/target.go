package load

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// A Target is where connections go: a node, or an address behind which nodes are.
type Target struct {
	Name string // host:port, as it was given
	Addr netip.AddrPort
	TLS  bool
	Path string // of requests that have none of their own
}

// A PublicError says that a target is neither on this machine nor in a private network.
type PublicError struct {
	Target string
	Addr   netip.Addr
}

func (e *PublicError) Error() string {
	return fmt.Sprintf("load: %s is %v, which is neither this machine nor in a private network", e.Target, e.Addr)
}

// ParseTarget reads http://HOST:PORT/PATH or https://…, and looks the host up. The address is
// used from then on, so that what was checked is what is loaded. One that is neither loopback,
// private nor link-local is a PublicError, unless public is set.
func ParseTarget(ctx context.Context, text string, public bool) (t Target, err error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Fragment != "" {
		return t, fmt.Errorf("load: %q is no target; write it as http://127.0.0.1:8080", text)
	}
	t.TLS = u.Scheme == "https"
	port := u.Port()
	if port == "" {
		port = map[bool]string{false: "80", true: "443"}[t.TLS]
	}
	t.Name, t.Path = u.Host, u.RequestURI()
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return t, fmt.Errorf("load: %q is no port", port)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return t, fmt.Errorf("load: finding %s: %w", u.Hostname(), err)
	}
	for _, a := range addrs {
		if a = a.Unmap(); !public && !ours(a) {
			return t, &PublicError{text, a}
		}
	}
	t.Addr = netip.AddrPortFrom(addrs[0].Unmap(), uint16(number))
	return t, nil
}

// ours reports whether an address is of this machine or of a private network.
func ours(a netip.Addr) bool { return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() }
