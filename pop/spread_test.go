package pop

import (
	"net"
	"testing"
	"testing/synctest"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
)

// Connections go to the pipes in turn. Those for a closed pipe go to the next one.
func TestSpread(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		pipes := []*shard.Pipe{shard.NewPipe(), shard.NewPipe(), shard.NewPipe()}
		got := make(chan int, 1)
		for i, w := range pipes {
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
		expect := func(i, want int) {
			t.Helper()
			if !give(near, pipes, i) {
				t.Errorf("connection %d went nowhere, want pipe %d", i, want)
				return
			}
			if pipe := <-got; pipe != want {
				t.Errorf("connection %d went to pipe %d, want %d", i, pipe, want)
			}
		}
		for i := range 6 {
			expect(i, i%3)
		}
		_ = pipes[1].Close()
		for range 20 { // select chooses at random if two cases are ready
			expect(0, 0)
			expect(1, 2)
			expect(2, 2)
		}
		_ = pipes[2].Close()
		expect(1, 0)
		_ = pipes[0].Close()
		if give(near, pipes, 0) {
			t.Error("a connection was given away although all pipes are closed")
		}
	})
}

// A pipe that is closed while a connection waits for it does not delay the others.
func TestSpreadWithClosedPipe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		front, pipes := shard.NewPipe(), []*shard.Pipe{shard.NewPipe(), shard.NewPipe()}
		done := make(chan struct{})
		go func() {
			defer close(done)
			spread(front, pipes)
		}()
		client, err := front.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first pipe does not accept
		_ = pipes[0].Close()
		conn, err := pipes[1].Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = client.Write([]byte("x")) }()
		if n, err := conn.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
		_ = client.Close()

		// If all pipes are closed, the connection is closed as well.
		_ = pipes[1].Close()
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
