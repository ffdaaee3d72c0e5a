package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// A shard is a memcached or Redis that may break.
type shard struct {
	addr string // at which nodes reach it
	args []string

	mu     sync.Mutex
	server *harness.Process // nil: not running
	at     string           // where server listens; not addr behind a relay
	twin   *shard           // second server behind addr; nil: none
	double bool             // connections alternate between server and twin
	dialed int
	conns  []net.Conn // through the relay
}

// serverName returns the program that runs as shards.
func serverName() string {
	if *redis {
		return "redis-server"
	}
	return "memcached"
}

// nameOf returns how nodes name the server at addr.
func nameOf(addr string) string {
	if *redis {
		return "redis://" + addr
	}
	return addr
}

// small returns the arguments of a server that holds some 10,000 counters, and then evicts some or refuses more.
func small(refuses bool) []string {
	switch {
	case *redis && refuses:
		return []string{"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"}
	case *redis:
		return []string{"--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"}
	case refuses:
		return []string{"-m", "1", "-I", "512k", "-M"}
	}
	return []string{"-m", "1", "-I", "512k"}
}

// startShard starts a shard, with which all nodes have a direct connection.
func startShard(args ...string) *shard {
	addr := harness.FreeAddr()
	s := &shard{addr: nameOf(addr), at: addr, args: args}
	s.start()
	return s
}

// startRelayed starts a shard behind a relay, which may have a second server, until ctx is done.
func startRelayed(ctx context.Context, args ...string) *shard {
	s := startShard(args...)
	s.twin = startShard(args...)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	s.addr = nameOf(ln.Addr().String())
	context.AfterFunc(ctx, func() { ln.Close() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", s.next())
			if err != nil {
				near.Close()
				continue
			}
			s.mu.Lock()
			s.conns = append(s.conns, near)
			s.mu.Unlock()
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go func() { _, _ = io.Copy(near, far); near.Close() }()
		}
	}()
	return s
}

// next returns the server of the next connection.
func (s *shard) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialed++
	if s.double && s.dialed%2 == 0 {
		return s.twin.at
	}
	return s.at
}

// share makes connections alternate between two servers, or ends that. Nodes have to connect again.
func (s *shard) share(double bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.double = double
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *shard) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		start := harness.MemcachedAt
		if *redis {
			start = harness.RedisAt
		}
		s.server = start("", s.at, s.args...)
	}
}

func (s *shard) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.End()
		s.server = nil
	}
}

// signal sends a signal to the server, if it runs.
func (s *shard) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Signal(sig)
	}
}

func (s *shard) end() {
	s.kill()
	if s.twin != nil {
		s.twin.kill()
	}
}

// fill stores 20,000 items a second, each as large as a counter, until ctx is done.
func (s *shard) fill(ctx context.Context) {
	for n := 0; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.at)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		items := bufio.NewWriter(conn)
		for tick := time.Now(); err == nil; tick = tick.Add(10 * time.Millisecond) {
			time.Sleep(time.Until(tick))
			for range 200 {
				n++
				if *redis {
					fmt.Fprintf(items, "SET %016d %020d\r\n", n, n)
				} else {
					fmt.Fprintf(items, "set %016d 0 0 20 noreply\r\n%020d\r\n", n, n)
				}
			}
			err = items.Flush()
		}
		stop()
		conn.Close()
	}
}
