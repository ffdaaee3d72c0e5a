// Package harness has helpers for benchmarks of whole processes. Failures end the program.
package harness

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// FreeAddr returns a local address that nobody listens on.
func FreeAddr() string { return FreeAddrs(1)[0] }

// The ports of free addresses are below those that the kernel gives to connections (ip_local_port_range), so that
// an address stays free while the program that listens there is down. Programs start at different ports.
const firstPort, ports = 10_000, 20_000

var lastPort atomic.Uint32

func init() { lastPort.Store(uint32(os.Getpid()) * 97) }

// FreeAddrs returns n distinct free addresses. It returns none twice.
func FreeAddrs(n int) (addrs []string) {
	for len(addrs) < n {
		addr := fmt.Sprint("127.0.0.1:", firstPort+lastPort.Add(1)%ports)
		if ln, err := net.Listen("tcp", addr); err == nil {
			Check(ln.Close())
			addrs = append(addrs, addr)
		}
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

// WaitForReady waits until the node with this metrics listener is ready.
func WaitForReady(metrics string) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get("http://" + metrics + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
	}
	Check(fmt.Errorf("no node is ready at %s", metrics))
}

// Check ends the program if err is not nil.
func Check(err error) {
	if err != nil {
		leave()
		log.Fatal(err)
	}
}
