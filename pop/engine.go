package pop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/spop"
)

// A server serves clients, or other proxies.
type server interface {
	Run()
	AskToLeave()
	Shutdown(context.Context) error
}

// serveClientsLocked starts a server for clients that connect to ln. mu is held.
func (n *Node) serveClientsLocked(ln net.Listener) {
	n.serveLocked(n.withProxyProtocol(ln), n.proxy)
}

// serveTLSLocked starts a server for clients that connect to ln with TLS. mu is held.
func (n *Node) serveTLSLocked(ln net.Listener) {
	n.serveLocked(tls.NewListener(conns.Greetings(n.withProxyProtocol(ln)), n.files.tls()), n.proxy)
}

// serveAskedLocked starts a server for other proxies that connect to ln. mu is held.
func (n *Node) serveAskedLocked(ln net.Listener) {
	_, local := ln.Addr().(*net.UnixAddr)
	n.serveLocked(ln, n.proxy.NewCheck(proxy.CheckOptions{Local: local, DenyStatus: n.o.CheckDenyStatus}))
}

// A socket is a UDP socket that can be in a list of listeners. It accepts nothing.
type socket struct{ net.PacketConn }

func (socket) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (s socket) Addr() net.Addr          { return s.LocalAddr() }

// serveHTTP3Locked starts a server for clients that send packets to ln, a socket. mu is held.
func (n *Node) serveHTTP3Locked(ln net.Listener) {
	o := http1.Options{Limits: n.o.Limits, Handler: n.proxy, Logger: n.o.Logger}
	server, err := n.proxy.NewHTTP3(ln.(socket).PacketConn, n.files.tls(), o)
	if err != nil {
		n.o.Logger.Error("cannot serve HTTP/3", "addr", ln.Addr(), "err", err)
		return
	}
	n.runLocked(server)
}

// serveLocked starts a server for ln. mu is held.
func (n *Node) serveLocked(ln net.Listener, handler http1.Handler) {
	n.runLocked(n.proxy.NewFront(ln, http1.Options{Limits: n.o.Limits, Handler: handler, Logger: n.o.Logger}))
}

// runLocked runs a server until Stop. mu is held.
func (n *Node) runLocked(s server) {
	n.servers = append(n.servers, s)
	n.running.Go(s.Run)
}

// serveHAProxyLocked starts a SPOP agent for ln. mu is held.
func (n *Node) serveHAProxyLocked(ln net.Listener) {
	agent := n.proxy.NewAgent()
	n.runLocked(spop.NewServer(ln, spop.Options{
		Handle:       agent.Handle,
		Refuse:       agent.RefusePeer,
		Add:          agent.Add,
		HelloTimeout: n.o.ReadHeaderTimeout,
		Logger:       n.o.Logger,
	}))
}

// ListenAt listens at addr, HOST:PORT or unix:PATH. Only this user and the members of a group may connect to a Unix
// socket; if group is 0, it is the process's own. ListenAt creates the socket's directory if only that is missing, and
// replaces the socket of a process that was killed.
func ListenAt(addr string, group int) (net.Listener, error) {
	path, unix := strings.CutPrefix(addr, "unix:")
	if !unix {
		return net.Listen("tcp", addr)
	}
	if dir := filepath.Dir(path); os.Mkdir(dir, 0) == nil {
		if err := share(dir, 0o750, group); err != nil {
			return nil, err
		}
	} else if info, err := os.Stat(dir); err == nil && !canEnter(info, group) {
		return nil, fmt.Errorf("the group of the socket cannot enter its directory: chgrp %d %s && chmod g+x %[2]s", group, dir)
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
		err = share(path, 0o660, group)
	}
	return ln, err
}

// share sets the mode of a file, whatever the umask is, and gives it to a group, unless that is 0.
func share(path string, mode os.FileMode, group int) error {
	err := os.Chmod(path, mode)
	if err == nil && group != 0 {
		err = os.Chown(path, -1, group)
	}
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: the node's user must be a member of the group %d", err, group)
	}
	return err
}

// canEnter reports whether the members of a group may use files in a directory. It returns true if group is 0.
func canEnter(dir os.FileInfo, group int) bool {
	gid := int(dir.Sys().(*syscall.Stat_t).Gid)
	return group == 0 || dir.Mode()&0o001 != 0 || gid == group && dir.Mode()&0o010 != 0
}
