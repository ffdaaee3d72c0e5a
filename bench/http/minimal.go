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

// Minimal servers show what Go's runtime costs without a node's work. They read a request once, and write the bytes of a refusal;
// or they write the request to the origin, read its response once, and write that. One kind has a goroutine for each connection,
// as a node has. The other has a single goroutine, which reads the sockets that its own epoll instance reports as ready.
const minimalEnv = "EDGE_BENCH_MINIMAL"

var refusal = []byte("HTTP/1.1 429 Too Many Requests\r\nDate: Sat, 28 Nov 2026 06:17:36 GMT\r\nContent-Type: text/plain; charset=utf-8\r\n" +
	"Retry-After: 3600\r\nContent-Length: 60\r\n\r\n" + strings.Repeat("x", 59) + "\n")

// compareMinimal prints the CPU time of refusals, or of requests that pass, for nginx, the node, and minimal servers, and
// the memory of the first two.
func (b *bench) compareMinimal(refuse bool) {
	name, origin := "request that passes", b.origin.addr
	most := int(harness.AllowFiles()) / 5 // a connection with the origin needs a file, too
	if refuse {
		name, origin = "refusal", "-"
		most *= 2 // a node gives a client up to 7/16
	}
	conns := []int{64, 1000, min(10_000, most)}
	servers := []*server{b.nginx(refuse), b.node("edge", *edge, refuse, ""), b.minimal("goroutines", origin), b.minimal("loop", origin)}
	for _, s := range servers {
		harness.WaitFor(s.addr)
		defer s.end()
	}
	fmt.Printf("CPU µs per %s (medians of %d rounds of %v), and peaks of memory\n\n"+
		"| connections | nginx | edge | minimal, a goroutine for each | minimal, one loop | nginx MB | edge MB |\n"+
		"|---|--:|--:|--:|--:|--:|--:|\n", name, *rounds, *length)
	for _, conns := range conns {
		cpu := make([][]float64, len(servers))
		for round := range *rounds + 1 {
			for i, s := range servers {
				if used := b.round(s, load{name: name, refuse: refuse, path: "/128", conns: conns}); round > 0 {
					cpu[i] = append(cpu[i], used)
				}
			}
		}
		fmt.Printf("| %d |", conns)
		for i := range servers {
			fmt.Printf(" %.1f |", median(cpu[i]))
		}
		for _, s := range servers[:2] {
			fmt.Printf(" %.1f |", float64(harness.PeakMemory(s.cmd.Process.Pid))/1e6)
		}
		fmt.Println()
	}
	fmt.Println()
}

// minimal starts this program as a minimal server, which refuses if origin is "-".
func (b *bench) minimal(kind, origin string) *server {
	addr := harness.FreeAddr()
	self, err := os.Executable()
	harness.Check(err)
	harness.Check(os.Setenv(minimalEnv, kind+" "+addr+" "+origin))
	defer os.Unsetenv(minimalEnv)
	s := b.run(kind, "0", self)
	s.addr = addr
	return s
}

// serveMinimal serves as a minimal server if this process was started as one.
func serveMinimal() {
	args := strings.Fields(os.Getenv(minimalEnv))
	if len(args) == 0 {
		return
	}
	if args[2] != "-" {
		origin = args[2]
	}
	l, err := net.Listen("tcp", args[1])
	harness.Check(err)
	serve := goroutines
	if args[0] == "loop" {
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

// origin is the address of the origin; empty for servers that refuse.
var origin string

// A socket is a connection with a client or the origin.
type socket struct {
	net.Conn
	raw    syscall.RawConn
	fd     uintptr
	client *socket // of a connection with the origin: the client that waits for the response
}

func newSocket(conn net.Conn, err error) *socket {
	harness.Check(err)
	s := &socket{Conn: conn}
	s.raw, err = conn.(syscall.Conn).SyscallConn()
	harness.Check(err)
	harness.Check(s.raw.Control(func(fd uintptr) { s.fd = fd }))
	return s
}

type buffer [4096]byte

// read reads the available bytes. It returns 0 if the connection has ended, and -1 if it must wait.
func (s *socket) read(buf *buffer) int {
	n, _, err := syscall.RawSyscall(syscall.SYS_READ, s.fd, uintptr(unsafe.Pointer(buf)), uintptr(len(buf)))
	switch err {
	case 0:
		return int(n)
	case syscall.EAGAIN:
		return -1
	}
	return 0
}

func (s *socket) write(data []byte) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, s.fd, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)))
}

// unused are the connections with the origin that wait for no response.
var (
	unused []*socket
	using  sync.Mutex
)

// ask sends a request to the origin, and returns the connection, which may be new.
func ask(request []byte) (s *socket, fresh bool) {
	using.Lock()
	defer using.Unlock()
	if last := len(unused) - 1; last >= 0 {
		s, unused = unused[last], unused[:last]
	} else {
		s, fresh = newSocket(net.Dial("tcp", origin)), true
	}
	s.write(request)
	return s, fresh
}

func (s *socket) reuse() {
	using.Lock()
	defer using.Unlock()
	unused = append(unused, s)
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// receive waits for data, and passes it to use. It reports whether there was any.
func (s *socket) receive(use func(data []byte)) bool {
	n := 0
	_ = s.raw.Read(func(uintptr) bool {
		buf := buffers.Get().(*buffer)
		defer buffers.Put(buf)
		if n = s.read(buf); n > 0 {
			use(buf[:n])
		}
		return n >= 0
	})
	return n > 0
}

func goroutines(conn net.Conn) {
	s := newSocket(conn, nil)
	go func() {
		defer s.Close()
		var o *socket
		request := func(data []byte) {
			if origin == "" {
				s.write(refusal)
			} else {
				o, _ = ask(data)
			}
		}
		for s.receive(request) {
			if o != nil && o.receive(s.write) {
				o.reuse()
			}
		}
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
	sockets := map[int32]*socket{}
	watch := func(s *socket) {
		mu.Lock()
		sockets[int32(s.fd)] = s
		mu.Unlock()
		const edgeTriggered = 1 << 31
		harness.Check(syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, int(s.fd), &syscall.EpollEvent{Events: syscall.EPOLLIN | edgeTriggered, Fd: int32(s.fd)}))
	}
	serve := func(s *socket, buf *buffer) {
		n := s.read(buf)
		switch {
		case n < 0:
		case n == 0:
			mu.Lock()
			delete(sockets, int32(s.fd))
			mu.Unlock()
			_ = s.Close()
		case origin == "":
			s.write(refusal)
		case s.client != nil:
			s.client.write(buf[:n])
			s.reuse()
		default:
			o, fresh := ask(buf[:n])
			if o.client = s; fresh {
				watch(o)
			}
		}
	}
	go func() {
		var buf buffer
		var events [256]syscall.EpollEvent
		_ = raw.Read(func(uintptr) bool {
			for {
				n, _, err := syscall.RawSyscall6(syscall.SYS_EPOLL_WAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events)), uintptr(len(events)), 0, 0, 0)
				if err != 0 || n == 0 {
					return false
				}
				for _, e := range events[:n] {
					mu.Lock()
					s := sockets[e.Fd]
					mu.Unlock()
					if s != nil {
						serve(s, &buf)
					}
				}
			}
		})
	}()
	return func(conn net.Conn) { watch(newSocket(conn, nil)) }
}
