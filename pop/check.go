package pop

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/pop/shards"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// Check returns all errors in o, joined: numbers out of bounds, missing settings, and settings that contradict
// each other. It opens no socket. New returns the same errors.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

// check replaces zero numbers with their defaults and returns all errors, joined.
func (o *Options) check() error {
	rows := Settings(o)
	var errs []error
	wrong := func(name, problem, other string) {
		errs = append(errs, setting.Conflict(rows, name, problem, other))
	}
	for _, s := range rows {
		errs = append(errs, s.Check())
	}
	errs = append(errs, setting.CheckTogether(rows, setting.Setting.Given))
	if o.Name == "" {
		wrong("name", "", "")
	}
	switch rules := o.Rules != nil; {
	case rules && len(o.RuleFiles) > 0:
		errs = append(errs, errors.New("pop: Rules and RuleFiles contradict each other"))
	case !rules && len(o.RuleFiles) == 0:
		wrong("rules", "", "")
	}
	if _, err := rulefile.Files(o.RuleFiles...); err != nil && len(o.RuleFiles) > 0 {
		errs = append(errs, setting.FileError("rules", err))
	}
	if o.Origin == "" && len(o.HostOrigins) == 0 && !o.Embedded && (!o.asked() || o.TLSListen != "") {
		hint := "--origin http://127.0.0.1:3000"
		if o.TLSListen == "" {
			hint += ", or --check-listen if another proxy asks the node; see docs/beside.md"
		}
		errs = append(errs, &setting.Error{Setting: "origin", Hint: hint})
	}
	var err error
	invalid := func(addr string) bool { return checkShard(addr) != nil } // which its setting reports
	o.shards, err = shards.ParseAddresses(o.Shards)
	if err != nil && !slices.ContainsFunc(o.Shards, invalid) {
		errs = append(errs, &setting.Error{Setting: "shard", Problem: err.Error()})
	}
	if o.Gossip.Listen != "" && o.Peers != nil {
		errs = append(errs, errors.New("pop: Gossip and Peers contradict each other"))
	}
	if addr, err := gossipAddr(o.Gossip.Listen); err == nil && o.Gossip.KeyFile == "" && len(o.Gossip.Keys) == 0 && !addr.Addr().IsLoopback() {
		wrong("gossip-listen", "is not a loopback address, and needs", "gossip-key-file")
	}
	o.Secret, err = o.secret()
	err = errors.Join(err, o.checkListeners(wrong))
	return errors.Join(append(errs, err)...)
}

// checkRules returns an error if a node with o cannot use rules in a PoP of this many nodes.
func (o *Options) checkRules(set *rule.Set, nodes int) error {
	if o.StrictHosts && len(o.HostOrigins) == 0 && !set.NamesHosts() {
		return &setting.Error{Setting: "strict-hosts", Problem: "refuses all requests, because no rule names a host: add hosts to a rule, or set", Other: "host-origin"}
	}
	return rulefile.CheckNodes(set, nodes)
}

// maxSocketPath is the maximum length of the path of a Unix socket, in bytes.
const maxSocketPath = 107

// A Listener is a setting with an address to listen on, HOST:PORT, or an empty one.
type Listener struct{ Name, Addr string }

// CheckListeners returns an error if an address is invalid or two listeners have the same one.
func CheckListeners(listeners ...Listener) error {
	var errs []error
	for i, l := range listeners {
		if l.Addr == "" {
			continue
		}
		host, port, err := net.SplitHostPort(l.Addr)
		if err != nil || !isPort(port) {
			hint := ""
			if isPort(l.Addr) {
				hint = "did you mean :" + l.Addr + "?"
			}
			errs = append(errs, &setting.Error{Setting: l.Name, Value: strconv.Quote(l.Addr), Problem: "must be HOST:PORT or :PORT, with a port up to 65535", Hint: hint})
			continue
		}
		for _, other := range listeners[:i] {
			if otherHost, otherPort, err := net.SplitHostPort(other.Addr); err == nil && port == otherPort && port != "0" && (host == otherHost || isWildcard(host) || isWildcard(otherHost)) {
				errs = append(errs, &setting.Error{Setting: l.Name, Value: strconv.Quote(l.Addr), Problem: "must have a port of its own, not that of", Other: other.Name})
			}
		}
	}
	return errors.Join(errs...)
}

// checkListeners returns an error if two listeners have the same address, or if an origin is the node itself:
// each request would come back until the machine has no ports left. Over TCP only trusted proxies may ask; Unix
// sockets are restricted by their group.
func (o *Options) checkListeners(wrong func(name, problem, other string)) error {
	var errs []error
	listeners := []Listener{{"listen", o.Listen}, {"tls-listen", o.TLSListen}, {"metrics-listen", o.MetricsListen}, {"admin-listen", o.AdminListen}, {"shard-listen", o.ShardListen}}
	clients := listeners[:2]
	for _, l := range []Listener{{"check-listen", o.CheckListen}, {"spop-listen", o.SPOPListen}} {
		path, unix := strings.CutPrefix(l.Addr, "unix:")
		switch {
		case strings.HasPrefix(l.Addr, "/"):
			errs = append(errs, &setting.Error{Setting: l.Name, Value: strconv.Quote(l.Addr), Problem: "must be HOST:PORT or unix:PATH", Hint: "did you mean unix:" + l.Addr + "?"})
		case !unix:
			listeners = append(listeners, l)
			if l.Addr != "" && len(o.TrustedProxies) == 0 {
				wrong(l.Name, "is not a Unix socket, and needs", "trusted-proxy")
			}
		case path == "" || len(path) > maxSocketPath:
			errs = append(errs, &setting.Error{Setting: l.Name, Value: strconv.Quote(l.Addr), Problem: fmt.Sprintf("must have a path of 1 to %d bytes", maxSocketPath)})
		}
	}
	if checkGossipListen(o.Gossip.Listen) == nil {
		listeners = append(listeners, Listener{"gossip-listen", o.Gossip.Listen})
	}
	errs = append(errs, CheckListeners(listeners...))
	origins := []Listener{{"origin", o.Origin}, {"acme-origin", o.ACMEOrigin}}
	for _, host := range slices.Sorted(maps.Keys(o.HostOrigins)) {
		origins = append(origins, Listener{"host-origin", o.HostOrigins[host]})
	}
	for _, l := range clients {
		for _, origin := range origins {
			if loops(origin.Addr, l.Addr) {
				errs = append(errs, &setting.Error{Setting: origin.Name, Value: strconv.Quote(origin.Addr), Problem: "must be the server behind the node, not the node's own", Other: l.Name})
				break
			}
		}
	}
	return errors.Join(errs...)
}

// isWildcard reports whether host means all addresses of the machine.
func isWildcard(host string) bool {
	return host == "" || slices.ContainsFunc(addresses(host), netip.Addr.IsUnspecified)
}

// loops reports whether a connection to origin, a URL, reaches the listener at addr.
func loops(origin, addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	u, badURL := url.Parse(origin)
	if err != nil || port == "0" || origin == "" || badURL != nil ||
		cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443", "h2c": "80"}[u.Scheme]) != port {
		return false
	}
	return host == u.Hostname() || slices.ContainsFunc(addresses(u.Hostname()), func(target netip.Addr) bool {
		return target.IsUnspecified() || isWildcard(host) && target.IsLoopback() || slices.Contains(addresses(host), target)
	})
}

// addresses returns the addresses of a host, as far as they are known without a look-up.
func addresses(host string) []netip.Addr {
	if host == "localhost" {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return []netip.Addr{addr.Unmap()}
}

func checkSecret(text string) error {
	if n := len(text); n > 0 && n < counter.MinSecret {
		return fmt.Errorf("must have at least %d bytes, not %d; make one with: head -c 24 /dev/urandom | base64", counter.MinSecret, n)
	}
	return nil
}

// secret returns the secret, given or read from its file, or "" without one.
func (o *Options) secret() (string, error) {
	if o.SecretFile == "" {
		return o.Secret, nil
	}
	secret, err := setting.ReadSecret(o.SecretFile)
	secret = strings.TrimRight(secret, "\r\n")
	if err == nil && secret == "" {
		err = fmt.Errorf("%s is empty", o.SecretFile)
	}
	if err = cmp.Or(err, checkSecret(secret)); err != nil {
		return "", secretFileError("secret-file", 24, err)
	}
	return secret, nil
}

// secretFileError returns err as an error about a setting that names a file with a secret. If the file is missing, the
// hint says how to make one of this many random bytes.
func secretFileError(name string, size int, err error) error {
	e := setting.FileError(name, err)
	if errors.Is(err, fs.ErrNotExist) {
		more := fmt.Sprintf("; to make one: (umask 077; head -c %d /dev/urandom | base64 > FILE)", size)
		e.Hint = strings.TrimPrefix(e.Hint+more, "; ")
	}
	return e
}
