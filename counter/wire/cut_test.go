package wire_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/redis"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/harness"
)

// A cutter is a proxy that breaks connections after some bytes from the client, or from the
// shard.
type cutter struct {
	addr        string
	there, back atomic.Int64 // bytes to let through; negative for all
}

func startCutter(t *testing.T, to string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: ln.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			var both sync.WaitGroup
			pass := func(dst, src net.Conn, most int64) {
				if most >= 0 {
					_, _ = io.CopyN(dst, src, most)
				} else {
					_, _ = io.Copy(dst, src)
				}
				near.Close()
				far.Close()
			}
			there, back := c.there.Load(), c.back.Load()
			both.Go(func() { pass(far, near, there) })
			both.Go(func() { pass(near, far, back) })
			wg.Go(both.Wait)
		}
	})
	return c
}

// Wherever a batch breaks off, all answered increments were counted, some of the unknown ones, and none of those reported as
// not sent, whatever protocol the shard speaks.
func TestBatchesCutAtEveryByte(t *testing.T) {
	options := wire.Options{Timeout: 5 * time.Second}
	t.Run("memcached", func(t *testing.T) {
		m := harness.StartMemcached(t)
		reference := memcache.New(m.Addr)
		defer reference.Close()
		cutEverywhere(t, m.Addr, func(addr string) client { return memcached.New(addr, options) }, func(items ...string) (values []uint64) {
			found, err := reference.GetMulti(items)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range items {
				value := "0"
				if got := found[item]; got != nil {
					value = string(got.Value)
				}
				values = append(values, number(t, value))
			}
			return values
		})
	})
	t.Run("Redis", func(t *testing.T) {
		r := harness.StartRedis(t)
		connect := func(addr string) client {
			at, err := redis.ParseAddress("redis://"+addr, nil)
			if err != nil {
				t.Fatal(err)
			}
			return redis.New(at, options)
		}
		conn, err := net.Dial("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		lines := bufio.NewScanner(conn)
		cutEverywhere(t, r.Addr, connect, func(items ...string) (values []uint64) {
			fmt.Fprintf(conn, "MGET %s\r\n", strings.Join(items, " "))
			for lines.Scan(); len(values) < len(items) && lines.Scan(); { // the number of values, then $-1, or $1 and a line
				value := ""
				if lines.Text() != "$-1" {
					lines.Scan()
					value = lines.Text()
				}
				values = append(values, number(t, value))
			}
			return values
		})
	})
}

// A client exchanges batches with a shard.
type client interface {
	Exchange(*counter.Batch) error
	Close() error
}

// number returns the value of a counter; "" is one that does not exist.
func number(t *testing.T, text string) (n uint64) {
	t.Helper()
	if _, err := fmt.Sscan("0"+strings.TrimSpace(text), &n); err != nil {
		t.Fatalf("%q is not a number", text)
	}
	return n
}

// cutEverywhere breaks exchanges with the shard at addr after every number of bytes. values returns what the shard has.
func cutEverywhere(t *testing.T, addr string, connect func(addr string) client, values func(items ...string) []uint64) {
	c := startCutter(t, addr)
	seen, tries := map[counter.Outcome]int{}, 0
	test := func(there, back int64) (done bool) {
		c.there.Store(there)
		c.back.Store(back)
		tries++
		s := connect(c.addr)
		defer s.Close()
		var b counter.Batch
		var items []string
		for i := range 4 {
			item := counter.Item([]byte(fmt.Sprintf("cut%05d%08d", tries, i%3)))
			b.Increments = append(b.Increments, counter.Increment{Item: item, Delta: 1, TTL: 60, Create: i < 3})
			items = append(items, item.String())
		}
		b.Reads = append(b.Reads, counter.Read{Item: b.Increments[0].Item})
		err := s.Exchange(&b)
		if err != nil && !errors.Is(err, counter.ErrUnknown) && !errors.Is(err, counter.ErrNotSent) {
			t.Fatalf("cut after %d, %d bytes: %v", there, back, err)
		}
		time.Sleep(2 * time.Millisecond) // the shard may still read what was sent
		least, most := map[string]uint64{}, map[string]uint64{}
		for _, op := range b.Increments {
			seen[op.Outcome]++
			switch op.Outcome {
			case counter.Done:
				least[op.Item.String()]++
				most[op.Item.String()]++
			case counter.Unknown:
				most[op.Item.String()]++
			case counter.NotSent:
			default:
				t.Fatalf("cut after %d, %d bytes: outcome %d", there, back, op.Outcome)
			}
		}
		for i, value := range values(items[:3]...) {
			if item := items[i]; value < least[item] || value > most[item] {
				t.Fatalf("cut after %d, %d bytes: %s is %d, want %d to %d", there, back, item, value, least[item], most[item])
			}
		}
		return err == nil
	}
	for cut := int64(0); !test(cut, -1); cut++ {
	}
	for cut := int64(0); !test(-1, cut); cut++ {
	}
	if seen[counter.Done] == 0 || seen[counter.Unknown] == 0 {
		t.Errorf("outcomes %v: want some Done and some Unknown", seen)
	}
}
