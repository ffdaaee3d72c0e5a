package harness

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"
)

// ReservePort returns an address of 127.0.0.1 whose port the system gives to no other process until the test ends. A
// server that sets SO_REUSEADDR, as most do, can listen there any number of times; without a server, connections are
// refused. Only Linux reserves the port; elsewhere it is merely free at first.
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
