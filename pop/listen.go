package pop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/net/netutil"

	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/page"
)

// A listener is one that Start opens.
type listener struct {
	net.Listener
	name string
}

// listen opens all listeners or none.
func (n *Node) listen() (all []listener, err error) {
	defer func() {
		if err != nil {
			closeAll(all)
		}
	}()
	for _, l := range []listener{
		{name: "http"},
		{name: "https"},
		{name: "metrics"},
		{name: "admin"},
		{name: "shard"},
		{name: "check"},
		{name: "spop"},
	} {
		addr := map[string]string{"http": n.o.Listen, "https": n.o.TLSListen, "metrics": n.o.MetricsListen, "admin": n.o.AdminListen, "shard": n.o.ShardListen, "check": n.o.CheckListen, "spop": n.o.SPOPListen}[l.name]
		if given := n.o.Listeners[l.name]; given != nil {
			l.Listener = given
		} else if addr == "" {
			continue
		} else if l.Listener, err = ListenAt(addr); err != nil {
			return all, fmt.Errorf("pop: listening for %s: %w", l.name, err)
		}
		if n.o.ProxyProtocol && (l.name == "http" || l.name == "https") {
			l.Listener = n.withProxyProtocol(l.Listener)
		}
		if l.name == "https" {
			l.Listener = tls.NewListener(l.Listener, n.files.tls())
		}
		all = append(all, l)
	}
	return all, nil
}

func closeAll(listeners []listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// serveMetricsLocked starts a server for what watches the node. mu is held.
func (n *Node) serveMetricsLocked(ln net.Listener) {
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	s := n.serveLocked(&steadyListener{Listener: ln, logger: n.o.Logger}, admin.Handler(n.registry, n.readiness), both)
	n.operators = append(n.operators, s.Server)
}

// adminConnections is how many connections operators may have at once. Others wait.
const adminConnections = 256

// serveAdminLocked starts a server for operators. mu is held.
func (n *Node) serveAdminLocked(ctx context.Context, ln net.Listener) {
	host, _, _ := net.SplitHostPort(n.o.AdminListen)
	at, _ := ln.Addr().(*net.TCPAddr)
	operations := n.operations()
	page := page.New(page.Options{Operations: operations, Metrics: n.registry, Near: n.near, Changed: n.changed, Now: n.o.Now})
	n.running.Go(func() { page.Run(ctx) })
	api := admin.NewAPI(admin.Options{
		Operations: operations,
		Page:       page,
		Events:     http.HandlerFunc(page.Events),
		Tokens:     &n.tokens,
		Host:       host,
		Open:       at != nil && at.IP.IsLoopback(),
		PProf:      n.o.AdminPProf,
		Logger:     n.o.Logger,
		Registerer: n.registry,
	})
	remove := func() {}
	if n.o.AdminTokens != "" {
		admin.RemoveLocal(ln.Addr().String())
	} else {
		var err error
		if remove, err = n.tokens.WriteLocal(ln.Addr().String()); err != nil {
			n.o.Logger.Warn("cannot write the token for commands on this machine, so that nothing can be changed through the admin listener: set admin-tokens", "err", err)
		}
		if at == nil || !at.IP.IsLoopback() {
			n.o.Logger.Warn("the admin listener is not on the loopback network, and only this machine knows its token: set admin-tokens", "admin", ln.Addr())
		}
	}
	server := api.Server()
	n.operators = append(n.operators, server)
	n.running.Go(func() {
		_ = server.Serve(netutil.LimitListener(&steadyListener{Listener: ln, logger: n.o.Logger}, adminConnections)) // until it is closed
		remove()
	})
}
