// Command quic measures HTTP/3 on one core: the CPU time of requests, compared with nginx, HAProxy and Caddy with QUIC in PATH, and
// the cost of clients that do nothing useful: the memory of idle connections, the CPU time of first packets, handshakes
// and streams that are reset, and the latency of another client meanwhile. That client sends 200 requests a second,
// which pass; their CPU time is part of the printed figures.
//
//	cd bench && go run . quic
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	idle   = flag.Int("idle", 10_000, "`number` of idle connections")
	length = flag.Duration("length", 5*time.Second, "length of a round, and of each flood")
	rounds = flag.Int("rounds", 3, "rounds, in which each server runs once")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	log.SetOutput(io.Discard) // quic-go warns of small buffers
	harness.Main(run)
}

// A target is the node, and how to reach it.
type target struct {
	node   *harness.Process
	addr   *net.UDPAddr
	secure *tls.Config
}

func run() {
	dir, remove := harness.TempDir()
	defer remove()
	harness.Certify(dir)
	origin := harness.StartOrigin("1", dir)
	defer origin.End()
	fmt.Println(harness.Machine())
	compare(dir, origin.Addr)

	s := node(dir, origin.Addr, false)
	t := &target{node: s.Process, secure: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}}}
	defer t.node.End()
	harness.WaitFor(s.addr)
	var err error
	t.addr, err = net.ResolveUDPAddr("udp", s.addr)
	harness.Check(err)
	t.idle(*idle)
	fmt.Println("\n| flood | attempts/s | cores used | p50 and p99 in ms of another client |\n|---|--:|--:|--:|")
	for _, f := range []struct {
		name    string
		workers int
		rate    time.Duration // of all workers, per second
		attempt func(context.Context) func()
	}{
		{"none", 0, 1, nil},
		{"first packets whose sender does not answer", 64, 1000, t.firstPacket},
		{"handshakes", 16, 200, t.handshake},
		{"streams that are reset", 16, 4000, t.resets},
	} {
		var attempts atomic.Int64
		before := t.node.PreciseCPU()
		took := t.probe(*length, func() {
			ctx, cancel := context.WithTimeout(context.Background(), *length)
			defer cancel()
			var workers sync.WaitGroup
			for range f.workers {
				workers.Go(func() {
					attempt, due := f.attempt(ctx), time.Now()
					for ; ctx.Err() == nil; attempts.Add(1) {
						attempt()
						due = due.Add(time.Duration(f.workers) * time.Second / f.rate)
						time.Sleep(time.Until(due))
					}
				})
			}
			workers.Wait()
		})
		cpu := (t.node.PreciseCPU() - before).Seconds()
		fmt.Printf("| %s | %.0f | %.2f | %s |\n", f.name, float64(attempts.Load())/length.Seconds(), cpu/length.Seconds(), took)
	}
}

// idle prints the memory that n idle connections take.
func (t *target) idle(n int) {
	before := t.node.Memory()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	harness.Check(err)
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	var failed atomic.Int64
	var dials sync.WaitGroup
	limit := make(chan struct{}, 32)
	for range n {
		limit <- struct{}{}
		dials.Go(func() {
			defer func() { <-limit }()
			conn, err := transport.Dial(context.Background(), t.addr, t.secure, nil)
			if err == nil {
				_, err = ask((&http3.Transport{}).NewClientConn(conn))
			}
			if err != nil {
				failed.Add(1)
			}
		})
	}
	dials.Wait()
	time.Sleep(2 * time.Second)
	fmt.Printf("\n%d idle connections, %d failed: %.1f KB each; meanwhile, requests took %s ms at p50 and p99\n", n,
		failed.Load(), float64(t.node.Memory()-before)/1024/float64(n), t.probe(*length, func() {}))
}

// probe returns the latency of a client that sends 200 requests a second over one connection while others runs.
func (t *target) probe(length time.Duration, others func()) string {
	conn, err := quic.DialAddr(context.Background(), t.addr.String(), t.secure, nil)
	harness.Check(err)
	defer func() { _ = conn.CloseWithError(0, "") }()
	client := (&http3.Transport{}).NewClientConn(conn)
	var running sync.WaitGroup
	running.Go(others)
	var took []time.Duration
	due := time.Now()
	for range int(length.Seconds() * 200) {
		time.Sleep(time.Until(due))
		_, err := ask(client)
		harness.Check(err)
		took = append(took, time.Since(due))
		due = due.Add(time.Second / 200)
	}
	running.Wait()
	p50, p99 := harness.Percentiles(took)
	return fmt.Sprintf("%.2f and %.2f", p50, p99)
}

// ask sends a request and returns the status.
func ask(client *http3.ClientConn) (int, error) {
	req, err := http.NewRequest("GET", "https://localhost/", nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// A deaf socket sends packets and receives none, like one with a forged address.
type deaf struct{ net.PacketConn }

func (d deaf) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		if _, _, err := d.PacketConn.ReadFrom(p); err != nil {
			return 0, nil, err
		}
	}
}

func (t *target) firstPacket(context.Context) func() {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	harness.Check(err)
	transport := &quic.Transport{Conn: deaf{socket}}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, _ = transport.Dial(ctx, t.addr, t.secure, nil)
	}
}

func (t *target) handshake(ctx context.Context) func() {
	return func() {
		if conn, err := quic.DialAddr(ctx, t.addr.String(), t.secure, nil); err == nil {
			_ = conn.CloseWithError(0, "")
		}
	}
}

// resets opens streams and resets them. It opens another connection whenever the node closes one.
func (t *target) resets(ctx context.Context) func() {
	var conn *quic.Conn
	return func() {
		if conn == nil || conn.Context().Err() != nil {
			var err error
			if conn, err = quic.DialAddr(ctx, t.addr.String(), t.secure, nil); err != nil {
				return
			}
		}
		stream, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return
		}
		_, _ = stream.Write([]byte{1, 100, 0, 0}) // the beginning of a header
		stream.CancelWrite(0)
		stream.CancelRead(0)
	}
}
