package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edgelimit/edge/bench/harness"
)

// compareLatency prints the latency of requests at half the rate that saturates a core of the slower server.
func (b *bench) compareLatency(wanted *regexp.Regexp) {
	fmt.Printf("ms that requests take, p50 and p99 (medians of %d rounds of %v), at half the rate that saturates one core\n\n", *rounds, *length)
	fmt.Println("| | requests/s | nginx p50 | p99 | edge p50 | p99 |\n|---|--:|--:|--:|--:|--:|")
	for _, refuse := range []bool{true, false} {
		servers := []*server{b.nginx(refuse), b.node("edge", *edge, refuse, "")}
		for _, s := range servers {
			harness.WaitFor(s.addr)
		}
		for _, l := range loads {
			if l.refuse != refuse || l.tls || l.upload > 0 || !wanted.MatchString(l.name) {
				continue
			}
			most := 0.0
			for _, s := range servers {
				b.round(s, l) // a warm-up
				most = max(most, b.round(s, l))
			}
			rate := 1e6 / most / 2
			p50, p99 := make([][]float64, len(servers)), make([][]float64, len(servers))
			for range *rounds {
				for i, s := range servers {
					half, most := harness.Percentiles(send(s, l, rate))
					p50[i], p99[i] = append(p50[i], half), append(p99[i], most)
				}
			}
			fmt.Printf("| %s | %.0f | %.2f | %.2f | %.2f | %.2f |\n", l.name, rate, median(p50[0]), median(p99[0]), median(p50[1]), median(p99[1]))
		}
		for _, s := range servers {
			s.end()
		}
	}
}

// A conn is a connection of send.
type conn struct {
	fd   int
	due  time.Time // of the request in flight
	left int       // remaining bytes of its response; 0 before the header
}

// send sends requests at a rate, with random gaps, and returns the latency of each from the time when it was
// due. If the machine does not let it send in time, it starts again. It makes only system calls, on its own
// thread: other clients would need more of the core that it shares with the origin.
func send(s *server, l load, rate float64) (took []time.Duration) {
	leaveFirstCore()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		harness.Check(unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0))
		for range 20 {
			var late int
			if took, late = sendOnce(s, l, rate); late <= len(took)/100 {
				return
			}
		}
		log.Fatalf("%s, %s: the load generator cannot send %.0f requests each second", l.name, s.name, rate)
	}()
	<-done
	return took
}

// leaveFirstCore keeps all threads of this process off the servers' core.
func leaveFirstCore() {
	var others unix.CPUSet
	for core := 1; core < runtime.NumCPU(); core++ {
		others.Set(core)
	}
	threads, err := os.ReadDir("/proc/self/task")
	harness.Check(err)
	for _, t := range threads {
		id, _ := strconv.Atoi(t.Name())
		_ = unix.SchedSetaffinity(id, &others) // the thread may have ended
	}
}

// sendOnce also returns the number of requests that were more than 1 ms late although connections were free.
func sendOnce(s *server, l load, rate float64) (took []time.Duration, late int) {
	took = make([]time.Duration, 0, int(2*rate*length.Seconds())+1000)
	poll, err := unix.EpollCreate1(0)
	harness.Check(err)
	defer unix.Close(poll)
	conns, free := make([]conn, l.conns), make(chan int, l.conns)
	for i := range conns {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		harness.Check(err)
		defer unix.Close(fd)
		to := netip.MustParseAddrPort(s.addr)
		harness.Check(unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
		conns[i].fd = fd
		harness.Check(unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}))
		free <- i
	}
	request := []byte("GET " + l.path + " HTTP/1.1\r\nHost: a\r\n\r\n")
	buffer, events := make([]byte, 64<<10), make([]unix.EpollEvent, 128)
	due := time.Now()
	begin := due.Add(time.Second / 4) // all connections have answered by then
	idle := true                      // connections were free
	for end := begin.Add(*length); due.Before(end) || len(free) < len(conns); {
		now := time.Now()
		for len(free) > 0 && due.Before(now) && due.Before(end) {
			c := &conns[<-free]
			if _, err := unix.Write(c.fd, request); err != nil {
				log.Fatalf("%s: %v", s.name, err)
			}
			if idle && now.Sub(due) > time.Millisecond {
				late++
			}
			c.due = due
			due = due.Add(time.Duration(rand.ExpFloat64() / rate * 1e9))
		}
		idle = len(free) > 0
		n, err := unix.EpollWait(poll, events, 0)
		if n == 0 {
			wait := time.Until(due)
			if len(free) == 0 || !due.Before(end) {
				wait = time.Second
			}
			ns := unix.NsecToTimespec(max(0, wait.Nanoseconds()))
			_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(poll), Events: unix.POLLIN}}, &ns, nil)
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			log.Fatal(err)
		}
		for _, e := range events[:max(n, 0)] { // -1 after EINTR
			c := &conns[e.Fd]
			n, err := unix.Read(c.fd, buffer)
			if err != nil || n == 0 {
				log.Fatalf("%s closed a connection: %v", s.name, err)
			}
			if c.left == 0 {
				c.left = responseLength(buffer[:n], l.refuse)
			}
			if c.left -= n; c.left == 0 {
				if c.due.After(begin) {
					took = append(took, time.Since(c.due))
				}
				free <- int(e.Fd)
			}
		}
	}
	return took, late
}

// responseLength returns the length of the response whose header is at the start of text.
func responseLength(text []byte, refused bool) int {
	head, _, _ := bytes.Cut(text, []byte("\r\n\r\n"))
	_, length, _ := bytes.Cut(head, []byte("\r\nContent-Length: "))
	length, _, _ = bytes.Cut(length, []byte("\r\n"))
	body, err := strconv.Atoi(string(length))
	passed := bytes.HasPrefix(head, []byte("HTTP/1.1 200")) // nginx lets one request a minute pass
	if err != nil || !passed && !(refused && bytes.HasPrefix(head, []byte("HTTP/1.1 429"))) {
		log.Fatalf("unexpected response: %q", text)
	}
	return len(head) + len("\r\n\r\n") + body
}
