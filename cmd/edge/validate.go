package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/proxy"
)

// What is wrong with settings is said before a socket opens, all at once, and with the
// place where each was given.

// fail returns what is wrong with the setting called name.
func fail(flags *pflag.FlagSet, name, hint, format string, args ...any) error {
	return usageError{fmt.Errorf("%s: %s", place(flags, name), fmt.Sprintf(format, args...)), hint}
}

func (f *nodeFlags) fail(name, hint, format string, args ...any) error {
	return fail(f.set, name, hint, format, args...)
}

// checkNode refuses what a node cannot do without, and a PoP on one machine can.
func (f *nodeFlags) checkNode() error {
	var errs []error
	if len(f.rules) == 0 {
		errs = append(errs, usageError{errors.New("a node needs rules"), "--rules rules.yaml; 'edge pop' brings sample rules"})
	}
	if f.origin == "" && len(f.hostOrigins) == 0 {
		errs = append(errs, usageError{errors.New("a node needs an origin"), "--origin http://127.0.0.1:3000"})
	}
	if len(f.shards) > 0 && f.secret == "" && f.secretFile == "" {
		errs = append(errs, f.fail("shard", "--secret-file FILE, made by: head -c 24 /dev/urandom | base64 > FILE",
			"a node that is given shards needs a secret, the same on every node of the PoP"))
	}
	return errors.Join(errs...)
}

// readSecret returns the secret, if one is given.
func (f *nodeFlags) readSecret() (string, error) {
	secret, name := f.secret, "secret"
	switch {
	case f.secretFile != "" && f.secret != "":
		return "", usageError{fmt.Errorf("%s and %s contradict each other", place(f.set, "secret"), place(f.set, "secret-file")), "give one of them"}
	case f.secretFile != "":
		text, err := os.ReadFile(f.secretFile)
		if err != nil {
			return "", usageError{fmt.Errorf("%s: %w", place(f.set, "secret-file"), err), "make one: head -c 24 /dev/urandom | base64 > FILE"}
		}
		secret, name = strings.TrimRight(string(text), "\r\n"), "secret-file"
	case f.secret == "":
		return "", nil
	}
	if len(secret) < counter.MinSecret {
		return "", f.fail(name, "head -c 24 /dev/urandom | base64", "a secret of %d bytes is too short, it has at least %d", len(secret), counter.MinSecret)
	}
	return secret, nil
}

func (f *nodeFlags) headerStyle() (proxy.HeaderStyle, error) {
	style, err := proxy.ParseHeaderStyle(f.headers)
	if err != nil {
		return style, f.fail("ratelimit-headers", "there are draft10, x-ratelimit, both and none", "%q is unknown", f.headers)
	}
	if name := f.nodeHeader; name != "" && !isToken(name) {
		return style, f.fail("node-header", "", "%q is not the name of a header", name)
	}
	return style, nil
}

// isToken reports whether name may be that of a header (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// networks returns the trusted networks.
func (f *nodeFlags) networks() (networks []netip.Prefix, err error) {
	const hint = "write a network such as 10.0.0.0/8, or an address"
	for _, text := range f.trusted {
		prefix, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
			prefix, err = netip.PrefixFrom(addr.WithZone(""), addr.BitLen()), nil
		}
		if err != nil {
			return nil, f.fail("trusted-proxy", hint, "%q is neither a network nor an address", text)
		}
		if prefix != prefix.Masked() {
			return nil, f.fail("trusted-proxy", fmt.Sprintf("write %v for the network, %v for the address", prefix.Masked(), prefix.Addr()),
				"%v is an address inside of a network", prefix)
		}
		networks = append(networks, prefix)
	}
	return networks, nil
}

// originsByHost returns the origins of single hosts.
func (f *nodeFlags) originsByHost() (map[string]string, error) {
	const hint = "HOST=URL, as in app.example.com=http://127.0.0.1:3000"
	origins, before := map[string]string{}, map[string]bool{}
	for _, text := range f.hostOrigins {
		host, url, ok := strings.Cut(text, "=")
		canonical := proxy.CanonicalHost(host)
		switch {
		case !ok || canonical == "" || url == "":
			return nil, f.fail("host-origin", hint, "%q is not HOST=URL", text)
		case strings.ContainsAny(host, "*/@ "):
			return nil, f.fail("host-origin", hint, "%q is not a host", host)
		case before[canonical]:
			return nil, f.fail("host-origin", "", "%s has two origins", canonical)
		}
		if _, err := proxy.NewOrigin(url, proxy.OriginOptions{}); err != nil {
			return nil, f.fail("host-origin", hint, "%s", message(err))
		}
		origins[host], before[canonical] = url, true
	}
	return origins, nil
}

func (f *nodeFlags) checkOrigin() error {
	if f.origin == "" {
		return nil
	}
	if _, err := proxy.NewOrigin(f.origin, proxy.OriginOptions{}); err != nil {
		return f.fail("origin", "", "%s", message(err))
	}
	return nil
}

func (f *nodeFlags) checkShards() error {
	for i, addr := range f.shards {
		host, port, err := net.SplitHostPort(addr)
		switch {
		case err != nil || !isPort(port) || port == "0":
			return f.fail("shard", "write HOST:PORT; memcached listens on port 11211 by default", "%q is not HOST:PORT", addr)
		case host == "":
			return f.fail("shard", "each node would mean its own machine", "%q has no host", addr)
		case slices.Contains(f.shards[:i], addr):
			return f.fail("shard", "", "%s is given twice", addr)
		}
	}
	return nil
}

// isPort reports whether text is the number of a port.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// Bounds of sizes. What takes more memory than a machine has is a mistake.
const (
	maxKeys        = 1 << 24
	maxHeaderBytes = 16 << 20
	maxNodes       = 1 << 20
)

// checkBounds refuses what the code would take for "not set", or cannot do.
func (f *nodeFlags) checkBounds() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"origin-timeout", f.originTimeout, 1},
		{"origin-connect-timeout", f.originConnect, 1},
		{"shard-timeout", f.shardTimeout, 1},
		{"flush-interval", f.flushInterval, 1},
		{"read-header-timeout", f.readHeaderTimeout, 1},
		{"idle-timeout", f.idleTimeout, 1},
		{"body-timeout", f.bodyTimeout, 0},
		{"drain-timeout", f.drainTimeout, 1},
	} {
		switch {
		case d.value < 0:
			errs = append(errs, f.fail(d.name, "", "%v is negative", d.value))
		case d.value < d.least:
			errs = append(errs, f.fail(d.name, "", "it must be longer than 0"))
		}
	}
	for _, n := range []struct {
		name        string
		value, most int
	}{
		{"queue-size", f.queueSize, maxKeys},
		{"tracked-keys", f.trackedKeys, maxKeys},
		{"mitigation-records", f.records, maxKeys},
		{"max-header-bytes", f.maxHeaderBytes, maxHeaderBytes},
		{"ipv4-prefix", f.ipv4, 32},
		{"ipv6-prefix", f.ipv6, 128},
	} {
		errs = append(errs, within(f.set, n.name, int64(n.value), int64(n.most)))
	}
	return errors.Join(errs...)
}

// within refuses a value of the setting called name that is not from 1 to most.
func within(flags *pflag.FlagSet, name string, value, most int64) error {
	if value >= 1 && value <= most {
		return nil
	}
	return fail(flags, name, "", "%d is not between 1 and %d", value, most)
}

// logger returns the logger that the settings describe.
func (f *nodeFlags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, f.fail("log-level", "there are debug, info, warn and error", "%q is unknown", f.logLevel)
	}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: plainJSON})), nil
	}
	return nil, f.fail("log-format", "there are text and json", "%q is unknown", f.logFormat)
}

// plainJSON writes durations in seconds, and what has a name by it.
func plainJSON(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	if named, ok := a.Value.Any().(fmt.Stringer); ok && a.Value.Kind() == slog.KindAny {
		a.Value = slog.StringValue(named.String())
	}
	return a
}

// check refuses what is wrong with the settings of a single node, and what contradicts
// those that f has.
func (o *ownFlags) check(f *nodeFlags) error {
	fail := f.fail
	var errs []error
	switch {
	case o.name == "":
		errs = append(errs, fail("name", "", "a node needs a name"))
	case strings.ContainsFunc(o.name, unicode.IsControl):
		errs = append(errs, fail("name", "", "%q has characters that cannot be shown", o.name))
	}
	if o.listen == "" && o.tlsListen == "" {
		errs = append(errs, fail("listen", "--listen :8080", "a node needs an address to listen on"))
	}
	switch {
	case o.tlsCert != "" && o.tlsKey == "":
		errs = append(errs, fail("tls-cert", "--tls-key FILE", "a certificate needs its key"))
	case o.tlsKey != "" && o.tlsCert == "":
		errs = append(errs, fail("tls-key", "--tls-cert FILE", "a key needs its certificate"))
	case o.tlsListen != "" && o.tlsCert == "":
		errs = append(errs, fail("tls-listen", "--tls-cert FILE --tls-key FILE", "TLS needs a certificate and its key"))
	case o.tlsCert != "" && o.tlsListen == "":
		errs = append(errs, fail("tls-cert", "--tls-listen :8443", "a certificate needs an address to listen on"))
	}
	if o.proxyProtocol && len(f.trusted) == 0 {
		errs = append(errs, fail("proxy-protocol", "--trusted-proxy 10.0.0.0/8", "it needs trusted proxies, else anybody could say who they are"))
	}
	names, listeners := []string{"listen", "tls-listen", "metrics-listen"}, []string{o.listen, o.tlsListen, o.metricsListen}
	errs = append(errs, checkListeners(f.set, names, listeners))
	for i, addr := range listeners[:2] {
		errs = append(errs, f.checkLoop(names[i], addr))
	}
	return errors.Join(errs...)
}

// checkListeners refuses what is no address, and addresses that are the same.
func checkListeners(flags *pflag.FlagSet, names, addrs []string) error {
	var errs []error
	for i, addr := range addrs {
		if addr == "" {
			continue
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil || !isPort(port) {
			hint := "write HOST:PORT or :PORT"
			if isPort(addr) {
				hint = fmt.Sprintf("did you mean :%s?", addr)
			}
			errs = append(errs, fail(flags, names[i], hint, "%q is no address to listen on", addr))
			continue
		}
		for j, other := range addrs[:i] {
			otherHost, otherPort, err := net.SplitHostPort(other)
			same := host == otherHost || isWildcard(host) || isWildcard(otherHost)
			if err == nil && port == otherPort && port != "0" && same {
				errs = append(errs, fail(flags, names[i], "give each a port of its own", "%s is %s already, by %s", addr, other, place(flags, names[j])))
			}
		}
	}
	return errors.Join(errs...)
}

// isWildcard reports whether host means all addresses of the machine.
func isWildcard(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// checkLoop refuses an origin that is the listener itself: each request would come back
// until the machine has no ports left.
func (f *nodeFlags) checkLoop(name, listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return nil
	}
	origins := map[string]string{"origin": f.origin}
	for _, text := range f.hostOrigins {
		if _, origin, _ := strings.Cut(text, "="); loops(origin, host, port) {
			origins["host-origin"] = origin
		}
	}
	for _, setting := range []string{"origin", "host-origin"} {
		if loops(origins[setting], host, port) {
			return f.fail(setting, "give the address of the server behind", "%s is the node itself, by %s", origins[setting], place(f.set, name))
		}
	}
	return nil
}

// loops reports whether a connection to origin comes to the listener at host:port.
func loops(origin, host, port string) bool {
	u, err := url.Parse(origin)
	if err != nil || origin == "" {
		return false
	}
	to := u.Port()
	if to == "" {
		to = map[string]string{"http": "80", "https": "443", "h2c": "80"}[u.Scheme]
	}
	if to != port {
		return false
	}
	addr, _ := netip.ParseAddr(u.Hostname())
	here := u.Hostname() == "localhost" || addr.IsLoopback() || addr.IsUnspecified()
	at, _ := netip.ParseAddr(host)
	switch {
	case isWildcard(host):
		return here
	case u.Hostname() == "localhost" || host == "localhost":
		return here && (host == "localhost" || at == netip.MustParseAddr("127.0.0.1") || at == netip.IPv6Loopback())
	default:
		return addr == at || addr.IsUnspecified()
	}
}
