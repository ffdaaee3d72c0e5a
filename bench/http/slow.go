package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// A crowd is a group of clients that a probing client must not notice.
type crowd struct {
	name   string
	n      int                                        // number of lasting connections, each with a client
	perSec int                                        // or new clients each second
	client func(ctx context.Context, s *server) error // until ctx is done
}

var crowds = []crowd{
	{name: "none"},
	{name: "1,000 slow headers", n: 1000, client: slowly("GET /128 HTTP/1.1\r\nHost: a\r\nX: ", 40)},
	{name: "1,000 slow bodies", n: 1000, client: slowly("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", 400)},
	{name: "1,000 slow readers", n: 1000, client: slowReader},
	{name: "20,000 idle connections", n: 20_000, client: idle},
	{name: "500 TLS handshakes each second", perSec: 500, client: handshake},
	{name: "1,000 refused connections", n: 1, client: flood},
	{name: "2,000 requests each second", perSec: 2000, client: nil}, // about half of the capacity of a core
}

// compareSlow prints the latency of a probing client for each crowd.
func (b *bench) compareSlow(wanted *regexp.Regexp) {
	files := int(harness.AllowFiles())
	b.write("1000000", string(make([]byte, 1_000_000)))
	b.flooded = true
	servers := b.start(false)
	fmt.Printf("ms that requests of a client take while there are other clients, p50 and p99 (medians of %d rounds of %v), and KB of memory that each of the others takes\n\n", *rounds, *length)
	fmt.Print("| |")
	for _, s := range servers {
		fmt.Printf(" %s p50 | p99 | KB |", s.name)
	}
	fmt.Println("\n|---|" + strings.Repeat("--:|", 3*len(servers)))
	for _, c := range crowds {
		if !wanted.MatchString(c.name) {
			continue
		}
		if most := files / 2; c.n > most {
			c.n, c.name = most, fmt.Sprintf("%s (%d, since open files are limited to %d)", c.name, most, files)
		}
		p50, p99, memory := make([][]float64, len(servers)), make([][]float64, len(servers)), make([][]float64, len(servers))
		for range *rounds {
			for i, s := range servers {
				half, most, kb := during(c, s)
				p50[i], p99[i], memory[i] = append(p50[i], half), append(p99[i], most), append(memory[i], kb)
			}
		}
		fmt.Printf("| %s |", c.name)
		for i := range servers {
			fmt.Printf(" %.2f | %.2f | %.1f |", median(p50[i]), median(p99[i]), median(memory[i]))
		}
		fmt.Println()
	}
	for _, s := range servers {
		s.end()
	}
}

// during measures the latency while the clients of c are active: the median and 99th percentile in milliseconds, and the
// memory of the server per connection of c, in KB.
func during(c crowd, s *server) (p50, p99, kb float64) {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	var failed atomic.Int64
	start := func() {
		clients.Go(func() {
			if err := c.client(ctx, s); err != nil && ctx.Err() == nil {
				failed.Add(1)
			}
		})
	}
	before := harness.Memory(s.cmd.Process.Pid)
	for i := range c.n {
		if start(); i%200 == 199 {
			time.Sleep(50 * time.Millisecond) // fewer at once than the accept queue holds
		}
	}
	if c.perSec > 0 && c.client != nil {
		clients.Go(func() {
			every := time.NewTicker(time.Second / time.Duration(c.perSec))
			defer every.Stop()
			for ctx.Err() == nil {
				<-every.C
				start()
			}
		})
	}
	time.Sleep(2 * time.Second)
	if c.n > 1 {
		kb = float64(harness.Memory(s.cmd.Process.Pid)-before) / 1024 / float64(c.n)
	}
	rate := 200
	if c.client == nil {
		rate += c.perSec
	}
	took := harness.Probe(s.addr, "/128", rate, *length)
	cancel()
	clients.Wait()
	time.Sleep(time.Second) // the server closes its side
	if n := failed.Load(); n > 0 {
		fmt.Fprintf(os.Stderr, "%s, %s: %d of the others failed\n", c.name, s.name, n)
	}
	p50, p99 = harness.Percentiles(took)
	return p50, p99, kb
}

// dial connects from one of a hundred addresses: each address has its own ports.
func dial(addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+rand.N(100)))}}
	return d.Dial("tcp", addr)
}

// slowly returns a client that sends begin, and then this number of bytes per second.
func slowly(begin string, bytes int) func(context.Context, *server) error {
	return func(ctx context.Context, s *server) error {
		conn, err := dial(s.addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		for text := begin; ctx.Err() == nil; text = strings.Repeat("x", bytes) {
			if _, err := io.WriteString(conn, text); err != nil {
				return err
			}
			sleep(ctx, time.Second)
		}
		return nil
	}
}

// slowReader requests 1 MB and reads 4 KB of it per second.
func slowReader(ctx context.Context, s *server) error {
	conn, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(conn, "GET /1000000 HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return err
	}
	part := make([]byte, 4<<10)
	for ctx.Err() == nil {
		if _, err := conn.Read(part); err != nil {
			return err
		}
		sleep(ctx, time.Second)
	}
	return nil
}

// idle sends one request, and waits.
func idle(ctx context.Context, s *server) error {
	conn, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /128 HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return err
	}
	if err := harness.ReadResponse(bufio.NewReader(conn)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// flood sends requests over 1,000 connections as fast as they are answered. All of them are refused.
func flood(ctx context.Context, s *server) error {
	cmd := pinned(loadCores, "wrk", "-t1", "-c1000", "-d1h", "http://"+s.addr+"/flood")
	if err := cmd.Start(); err != nil {
		return err
	}
	<-ctx.Done()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil
}

// handshake sends one request over TLS.
func handshake(_ context.Context, s *server) error {
	conn, err := dial(s.tls)
	if err != nil {
		return err
	}
	defer conn.Close()
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	_ = secure.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(secure, "GET /128 HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return err
	}
	return harness.ReadResponse(bufio.NewReader(secure))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
