package pop

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
)

// Connections go to the pipes in turn. Those for a closed pipe go to the next one.
func TestSpreader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const pipes = 3
		s := newSpreader(shard.NewPipe(), pipes, slog.New(slog.DiscardHandler))
		got := make(chan int, 1)
		for i, w := range s.pipes {
			go func() {
				for {
					if _, err := w.Accept(); err != nil {
						return
					}
					got <- i
				}
			}()
		}
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		give := func(i, want int) {
			t.Helper()
			if !s.give(near, i) {
				t.Errorf("connection %d went nowhere, want pipe %d", i, want)
				return
			}
			if pipe := <-got; pipe != want {
				t.Errorf("connection %d went to pipe %d, want %d", i, pipe, want)
			}
		}
		for i := range 2 * pipes {
			give(i, i%pipes)
		}
		_ = s.pipes[1].Close()
		for range 20 { // select chooses at random if two cases are ready
			give(0, 0)
			give(1, 2)
			give(2, 2)
		}
		_ = s.pipes[2].Close()
		give(1, 0)
		_ = s.pipes[0].Close()
		if s.give(near, 0) {
			t.Error("a connection was given away although all pipes are closed")
		}
	})
}

// A pipe that is closed while a connection waits for it does not delay the others.
func TestSpreaderWithEndedWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		front := shard.NewPipe()
		s := newSpreader(front, 2, slog.New(slog.DiscardHandler))
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run()
		}()
		client, err := front.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first pipe does not accept
		_ = s.pipes[0].Close()
		conn, err := s.pipes[1].Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = client.Write([]byte("x")) }()
		if n, err := conn.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
		_ = client.Close()

		// If all pipes are closed, the connection is closed as well.
		_ = s.pipes[1].Close()
		if client, err = front.Dial(t.Context(), "", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("a connection that nobody accepts stays open")
		}
		_ = front.Close()
		<-done
	})
}
