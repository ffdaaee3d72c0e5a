package memcached_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
)

// A deafConn answers the version, and fails to write anything else.
type deafConn struct {
	net.Conn
	asked bool
}

func (c *deafConn) Write(p []byte) (int, error) {
	if !c.asked {
		c.asked = true
		return c.Conn.Write(p)
	}
	return 0, errors.New("no byte was written")
}

// An increment of which no byte was written was not sent, so it may be sent again.
func TestNothingWritten(t *testing.T) {
	s := memcached.New("s:1", wire.Options{Timeout: 100 * time.Millisecond, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := scripted(t, func(string) string { return "1\r\n" })(ctx, network, addr)
		return &deafConn{Conn: conn}, err
	}})
	defer s.Close()
	b := increments("k", 3, true)
	if err := s.Exchange(b); err == nil {
		t.Fatal("the exchange succeeds")
	}
	for i, op := range b.Increments {
		if op.Outcome != counter.NotSent {
			t.Errorf("the outcome of the %dth increment is %d, want NotSent", i, op.Outcome)
		}
	}
}

// A lateConn returns from Write long after the data was sent, like a goroutine on a busy machine.
type lateConn struct{ net.Conn }

func (c lateConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	time.Sleep(time.Second)
	return n, err
}

// A shard may answer before the node notices that the batch was written.
func TestRepliesBeforeWriteReturns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := memcached.New("s:1", wire.Options{Timeout: 300 * time.Millisecond, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := scripted(t, func(string) string { return "1\r\n" })(ctx, network, addr)
			return lateConn{conn}, err
		}})
		defer s.Close()
		if err := s.Exchange(increments("k", 3, true)); err != nil {
			t.Error(err)
		}
	})
}
