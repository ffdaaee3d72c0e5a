package shard_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
)

func TestServeEndsWithItsConnections(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(cancel func(), ln net.Listener)
	}{
		{"context done", func(cancel func(), _ net.Listener) { cancel() }},
		{"listener closed", func(_ func(), ln net.Listener) { ln.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			s := shard.New(shard.Options{})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ln := listen(t)
			done := make(chan error)
			go func() { done <- s.Serve(ctx, ln) }()
			idle := dialTCP(t, ln.Addr().String())
			idle.expect("set k 0 0 1\r\n1\r\n", "STORED\r\n")
			busy := dialTCP(t, ln.Addr().String())
			busy.expect(ping+"set k 0 0 100\r\nabc", pong)

			tt.end(cancel, ln)
			if err := <-done; err != nil {
				t.Errorf("Serve: %v", err)
			}
			for _, c := range []*client{idle, busy} {
				if line := c.line(); line != "" {
					t.Errorf("got %q, want the end of the connection", line)
				}
				c.conn.Close()
			}

			// The next listener serves the same items.
			ln = listen(t)
			ctx, cancel = context.WithCancel(context.Background())
			go func() { done <- s.Serve(ctx, ln) }()
			c := dialTCP(t, ln.Addr().String())
			c.expect("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n")
			c.conn.Close()
			cancel()
			<-done
		})
	}
}

// failingListener returns each of errs once from Accept.
type failingListener struct {
	*shard.Pipe
	errs []error
}

func (l *failingListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	return l.Pipe.Accept()
}

func TestServeWaitsForFileDescriptors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ln := &failingListener{shard.NewPipe(), []error{syscall.EMFILE, syscall.ENFILE}}
		newServer(t, shard.Options{}, ln)
		dial(t, ln.Pipe).expect(ping, pong)
	})
}

func TestServeReportsAcceptErrors(t *testing.T) {
	s := shard.New(shard.Options{})
	broken := errors.New("broken")
	err := s.Serve(context.Background(), &failingListener{shard.NewPipe(), []error{broken}})
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "shard: ") {
		t.Errorf("Serve: %v, want shard: …: %v", err, broken)
	}
}

func TestMaxConns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ln := shard.NewPipe()
		newServer(t, shard.Options{MaxConns: 2}, ln)
		dial := func() *client { return dial(t, ln) }
		first, second := dial(), dial()
		first.expect(ping, pong)
		second.expect(ping, pong)

		third := dial()
		if got, want := third.line(), "ERROR Too many open connections\r\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := third.line(); got != "" {
			t.Errorf("got %q, want the end of the connection", got)
		}
		dial() // never reads
		time.Sleep(time.Minute)
		stats := first.stats()
		if stats["rejected_connections"] != 2 || stats["curr_connections"] != 2 || stats["total_connections"] != 2 {
			t.Errorf("rejected, curr, total = %d, %d, %d, want 2, 2, 2",
				stats["rejected_connections"], stats["curr_connections"], stats["total_connections"])
		}

		second.conn.Close()
		synctest.Wait()
		dial().expect(ping, pong)
	})
}

func TestServeConn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := shard.New(shard.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		near, far := net.Pipe()
		done := make(chan bool)
		go func() { s.ServeConn(ctx, far); done <- true }()
		newClient(t, near, nil).expect(ping, pong)
		cancel()
		<-done
		if _, err := near.Write([]byte(ping)); err == nil {
			t.Error("the connection is open, want it closed")
		}
	})
}

func TestLineTooLong(t *testing.T) {
	c := dialTCP(t, listenTCP(t, shard.Options{}))
	c.send("incr k 1 noreply\r\nget " + strings.Repeat("k ", 1<<14))
	if got, want := c.line(), "CLIENT_ERROR line too long\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// stats has the figures of memcached that operators and tests read.
func TestStatsNames(t *testing.T) {
	c := dialTCP(t, listenTCP(t, shard.Options{}))
	stats := c.stats()
	real := dialTCP(t, harness.StartMemcached(t).Addr).stats()
	for name := range stats {
		if _, ok := real[name]; !ok {
			t.Errorf("memcached has no %s", name)
		}
	}
	for _, name := range strings.Fields(`pid uptime time version curr_connections total_connections cmd_get cmd_set cmd_flush
		get_hits get_misses delete_hits delete_misses incr_hits incr_misses cas_hits cas_misses cas_badval
		limit_maxbytes curr_items bytes evictions reclaimed`) {
		if _, ok := stats[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
}
