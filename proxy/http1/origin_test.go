package http1

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// The connections of a peak are used again until they have been idle for a second. Of those, the ones used last stay.
func TestIdleConnectionsAfterAPeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigin(func() (net.Conn, error) {
			conn, _ := net.Pipe()
			return conn, nil
		}, time.Second)
		var all []*originConn
		for range 3 * maxIdle {
			c, err := o.get(false, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		idle := func() int {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.idle)
		}
		for _, c := range all[maxIdle:] {
			o.put(c, time.Now())
		}
		time.Sleep(surplusTimeout / 2)
		for _, c := range all[:maxIdle] {
			o.put(c, time.Now())
		}
		if n := idle(); n != 3*maxIdle {
			t.Errorf("after half a second: %d idle connections, want %d", n, 3*maxIdle)
		}
		time.Sleep(surplusTimeout/2 + time.Millisecond)
		if n := idle(); n != maxIdle {
			t.Errorf("after a second: %d idle connections, want %d", n, maxIdle)
		}
		if c, err := o.get(false, time.Now()); err != nil || c != all[maxIdle-1] || !c.reused {
			t.Errorf("got another connection than the one used last, %v", err)
		} else {
			o.put(c, time.Now())
		}
		closed := func(c *originConn) bool {
			_ = c.conn.SetWriteDeadline(time.Now())
			_, err := c.conn.Write([]byte("x"))
			return !IsTimeout(err)
		}
		if !closed(all[2*maxIdle]) {
			t.Error("a connection that was idle longest is open")
		}
		time.Sleep(idleTimeout + time.Millisecond)
		if n := idle(); n != 0 {
			t.Errorf("after %v: %d idle connections", idleTimeout, n)
		}
		last, err := o.get(false, time.Now())
		if err != nil || closed(last) {
			t.Fatalf("a new connection is closed, %v", err)
		}
		o.Close()
		if o.put(last, time.Now()); !closed(last) {
			t.Error("a connection that was in use when the origin was closed stays open")
		}
	})
}
