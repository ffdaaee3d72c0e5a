package shard_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
)

// dialPipe starts a server on a pipe, which works in a bubble, and returns a client of it.
func dialPipe(t testing.TB, o shard.Options) *client {
	t.Helper()
	ln := shard.NewPipe()
	newServer(t, o, ln)
	return dial(t, ln)
}

func TestExpiryIsExact(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{})
		c.expect("set k 0 2 1\r\n1\r\n", "STORED\r\n")
		time.Sleep(2*time.Second - time.Nanosecond)
		c.expect("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n")
		time.Sleep(time.Nanosecond)
		c.expect("get k\r\n", "END\r\n")
		if got := c.stats()["curr_items"]; got != 0 {
			t.Errorf("curr_items = %d, want 0", got)
		}
	})
}

func TestIncrDoesNotExtend(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{})
		c.expect("add k 0 10 1\r\n9\r\n", "STORED\r\n")
		time.Sleep(9 * time.Second)
		c.expect("incr k 1\r\n", "10\r\n") // longer than before
		c.expect("incr k 1\r\n", "11\r\n") // in place
		time.Sleep(time.Second)
		c.expect("incr k 1\r\n", "NOT_FOUND\r\n")
		c.expect("add k 0 10 1\r\n1\r\n", "STORED\r\n")
	})
}

func TestTimesAreRelativeUpTo30Days(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{})
		const month = 30 * 24 * time.Hour
		date := time.Now().Add(2 * month).Unix()
		c.expect("set relative 0 2592000 1\r\n1\r\n", "STORED\r\n")
		c.expect(fmt.Sprintf("set date 0 %d 1\r\n1\r\n", date), "STORED\r\n")
		c.expect(fmt.Sprintf("set past 0 %d 1\r\n1\r\n", time.Now().Unix()), "STORED\r\n")
		c.expect("get past\r\n", "END\r\n")
		c.expect(fmt.Sprintf("set past 0 %d 1\r\n1\r\n", time.Now().Unix()-1), "STORED\r\n") // before the shard began
		c.expect("get past\r\n", "END\r\n")
		time.Sleep(month - time.Nanosecond)
		c.expect("get relative\r\n", "VALUE relative 0 1\r\n1\r\nEND\r\n")
		time.Sleep(time.Nanosecond)
		c.expect("get relative\r\n", "END\r\n")
		time.Sleep(month - time.Nanosecond)
		c.expect("get date\r\n", "VALUE date 0 1\r\n1\r\nEND\r\n")
		time.Sleep(time.Nanosecond)
		c.expect("get date\r\n", "END\r\n")
	})
}

// A client that does not read delays only itself.
func TestStalledReader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ln := shard.NewPipe()
		newServer(t, shard.Options{}, ln)
		stalled, err := ln.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer stalled.Close()
		if _, err := stalled.Write([]byte("set k 0 0 1\r\n1\r\nincr k 1\r\n")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the reply cannot be sent

		c := dial(t, ln)
		c.expect("incr k 1\r\n", "3\r\n")
		if got := c.stats()["curr_connections"]; got != 2 {
			t.Errorf("curr_connections = %d, want 2", got)
		}
	})
}

func TestUptime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := dialPipe(t, shard.Options{})
		time.Sleep(90 * time.Second)
		stats := c.stats()
		if got := stats["uptime"]; got != 90 {
			t.Errorf("uptime = %d, want 90", got)
		}
		if got, want := stats["time"], time.Now().Unix(); got != want {
			t.Errorf("time = %d, want %d", got, want)
		}
	})
}
