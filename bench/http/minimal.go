package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/edgelimit/edge/bench/harness"
)

// Minimal servers read once and write the bytes of a refusal, to show what Go's runtime costs without a node's work. One has a
// goroutine for each connection, as a node has. The other has a single goroutine, which reads the sockets that its own epoll
// instance reports as ready.
const minimalEnv = "EDGE_BENCH_MINIMAL"

var refusal = []byte("HTTP/1.1 429 Too Many Requests\r\nDate: Sat, 28 Nov 2026 06:17:36 GMT\r\nContent-Type: text/plain; charset=utf-8\r\n" +
	"Retry-After: 3600\r\nContent-Length: 60\r\n\r\n" + strings.Repeat("x", 59) + "\n")

// compareMinimal prints the CPU time of refusals of nginx, the node, and minimal servers.
func (b *bench) compareMinimal() {
	files := int(harness.AllowFiles())
	servers := []*server{b.nginx(true), b.node("edge", *edge, true, ""), b.minimal("goroutines"), b.minimal("loop")}
	for _, s := range servers {
		harness.WaitFor(s.addr)
		defer s.end()
	}
	fmt.Printf("CPU µs per refusal (medians of %d rounds of %v)\n\n| connections | nginx | edge | minimal, a goroutine for each | minimal, one loop |\n"+
		"|---|--:|--:|--:|--:|\n", *rounds, *length)
	for _, conns := range []int{64, 1000, min(10_000, files*2/5)} { // a node gives a client up to 7/16
		cpu := make([][]float64, len(servers))
		for round := range *rounds + 1 {
			for i, s := range servers {
				if used := b.round(s, load{name: "refuse", refuse: true, path: "/128", conns: conns}); round > 0 {
					cpu[i] = append(cpu[i], used)
				}
			}
		}
		fmt.Printf("| %d |", conns)
		for i := range servers {
			fmt.Printf(" %.1f |", median(cpu[i]))
		}
		fmt.Println()
	}
}

// minimal starts this program as a minimal server.
func (b *bench) minimal(kind string) *server {
	addr := harness.FreeAddr()
	self, err := os.Executable()
	harness.Check(err)
	harness.Check(os.Setenv(minimalEnv, kind+" "+addr))
	defer os.Unsetenv(minimalEnv)
	s := b.run(kind, "0", self)
	s.addr = addr
	return s
}

// serveMinimal serves as a minimal server if this process was started as one.
func serveMinimal() {
	kind, addr, ok := strings.Cut(os.Getenv(minimalEnv), " ")
	if !ok {
		return
	}
	l, err := net.Listen("tcp", addr)
	harness.Check(err)
	serve := goroutines
	if kind == "loop" {
		serve = loop()
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		serve(conn)
	}
}

// answer reads the available bytes into buf and answers them. It returns false if the connection has ended.
func answer(fd uintptr, buf *[4096]byte) bool {
	n, _, err := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(buf)), uintptr(len(buf)))
	if err != 0 || n == 0 {
		return err == syscall.EAGAIN
	}
	_, _, err = syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(refusal))), uintptr(len(refusal)))
	return err == 0
}

var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

func goroutines(conn net.Conn) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	harness.Check(err)
	go func() {
		defer conn.Close()
		_ = raw.Read(func(fd uintptr) bool {
			buf := buffers.Get().(*[4096]byte)
			defer buffers.Put(buf)
			return !answer(fd, buf)
		})
	}()
}

// loop returns a function that adds a connection to the loop. Go's poller, which also has the sockets, wakes the loop when the
// epoll instance has events.
func loop() (add func(net.Conn)) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	harness.Check(err)
	harness.Check(syscall.SetNonblock(epoll, true))
	raw, err := os.NewFile(uintptr(epoll), "epoll").SyscallConn()
	harness.Check(err)
	var mu sync.Mutex
	conns := map[int32]net.Conn{}
	go func() {
		var buf [4096]byte
		var events [256]syscall.EpollEvent
		_ = raw.Read(func(uintptr) bool {
			for {
				n, _, err := syscall.RawSyscall6(syscall.SYS_EPOLL_WAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events)), uintptr(len(events)), 0, 0, 0)
				if err != 0 || n == 0 {
					return false
				}
				for _, e := range events[:n] {
					if answer(uintptr(e.Fd), &buf) {
						continue
					}
					mu.Lock()
					conn := conns[e.Fd]
					delete(conns, e.Fd)
					mu.Unlock()
					_ = conn.Close()
				}
			}
		})
	}()
	return func(conn net.Conn) {
		raw, err := conn.(syscall.Conn).SyscallConn()
		harness.Check(err)
		harness.Check(raw.Control(func(fd uintptr) {
			mu.Lock()
			conns[int32(fd)] = conn
			mu.Unlock()
			const edgeTriggered = 1 << 31
			harness.Check(syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, int(fd), &syscall.EpollEvent{Events: syscall.EPOLLIN | edgeTriggered, Fd: int32(fd)}))
		}))
	}
}
