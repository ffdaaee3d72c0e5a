// Package harness has helpers for benchmarks of whole processes. Failures end the program.
package harness

import (
	"fmt"
	"log"
	"net"
	"time"
)

// FreeAddr returns a local address that nobody listens on.
func FreeAddr() string { return FreeAddrs(1)[0] }

// FreeAddrs returns n distinct free addresses.
func FreeAddrs(n int) (addrs []string) {
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		Check(err)
		defer ln.Close()
		addrs = append(addrs, ln.Addr().String())
	}
	return addrs
}

// WaitFor waits until addr accepts connections.
func WaitFor(addr string) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return
		}
	}
	Check(fmt.Errorf("nobody listens on %s", addr))
}

// Check ends the program if err is not nil.
func Check(err error) {
	if err != nil {
		leave()
		log.Fatal(err)
	}
}
