package pop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/spop"
)

// A server serves clients, or other proxies.
type server interface {
	AskToLeave()
	Shutdown(context.Context) error
}

// serveClientsLocked starts a server for clients that connect to ln. mu is held.
func (n *Node) serveClientsLocked(ln net.Listener) {
	n.serveLocked(n.withProxyProtocol(ln), nil)
}

// serveTLSLocked starts a server for clients that connect to ln with TLS. mu is held.
func (n *Node) serveTLSLocked(ln net.Listener) {
	n.serveLocked(tls.NewListener(conns.Greetings(n.withProxyProtocol(ln)), n.files.tls()), nil)
}

// serveAskedLocked starts a server for other proxies that connect to ln. mu is held.
func (n *Node) serveAskedLocked(ln net.Listener) {
	_, local := ln.Addr().(*net.UnixAddr)
	n.serveLocked(ln, n.proxy.NewCheck(proxy.CheckOptions{Local: local, DenyStatus: n.o.CheckDenyStatus}))
}

// serveLocked starts a server for ln. If handler is nil, the proxy answers. mu is held.
func (n *Node) serveLocked(ln net.Listener, handler proxy.Handler) {
	front := n.proxy.NewFront(ln, proxy.FrontOptions{
		Limits: http1.Limits{
			ReadHeaderTimeout: n.o.ReadHeaderTimeout,
			IdleTimeout:       n.o.IdleTimeout,
			BodyTimeout:       n.o.BodyTimeout,
			BodyRate:          n.o.BodyRate,
			MaxHeaderBytes:    n.o.MaxHeaderBytes,
		},
		Handler:     handler,
		MaxStreams:  n.o.HTTP2Streams,
		MaxOverhead: n.o.HTTP2Overhead,
		Tunnels:     n.upgraded,
	})
	n.servers = append(n.servers, front)
	n.running.Go(front.Run)
}

// serveHAProxyLocked starts a SPOP agent for ln. mu is held.
func (n *Node) serveHAProxyLocked(ln net.Listener) {
	agent := n.proxy.NewAgent()
	server := spop.NewServer(ln, spop.Options{
		Handle:       agent.Handle,
		Refuse:       agent.RefusePeer,
		Add:          agent.Add,
		HelloTimeout: n.o.ReadHeaderTimeout,
		Logger:       n.o.Logger,
	})
	n.servers = append(n.servers, server)
	n.running.Go(server.Run)
}

// ListenAt listens at addr, HOST:PORT or unix:PATH. The permissions of a Unix socket's directory decide who may
// connect. ListenAt replaces the socket of a process that was killed.
func ListenAt(addr string) (net.Listener, error) {
	path, unix := strings.CutPrefix(addr, "unix:")
	if !unix {
		return net.Listen("tcp", addr)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
	} else if info, errStat := os.Stat(path); errStat == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("%s is not a socket; choose another path", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	ln, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	return ln, err
}
