package harness

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"
)

// ReservePort returns an address of 127.0.0.1 whose port the system gives to nobody else until the test
// ends. A server that asks for this port, with SO_REUSEADDR as servers do, can listen there again and
// again; until then connections are refused. This works on Linux only. Elsewhere the port is free when
// ReservePort returns.
func ReservePort(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	free := func() { _ = syscall.Close(fd) }
	if runtime.GOOS == "linux" {
		t.Cleanup(free)
	} else {
		defer free()
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	host := [4]byte{127, 0, 0, 1}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: host}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4(host), uint16(name.(*syscall.SockaddrInet4).Port))
	return addr.String()
}
