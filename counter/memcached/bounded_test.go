package memcached_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
)

// A forged VALUE line costs no memory, and the length of lines and the number of values are bounded.
func TestForgedValues(t *testing.T) {
	for _, reply := range []string{
		"VALUE r 0 4294967290\r\n",
		"VALUE r 0 4294967290 1\r\n",
		"VALUE  0 4294967290\r\n",     // no name
		"VALUE r\ts 0 4294967290\r\n", // one name for gomemcache
		"VALUE r 0 200000\r\n",
		"VALUE r 0 -1\r\n",
		"VALUE r 0 99999999999999999999\r\n",
		"VALUE " + strings.Repeat("r", 1<<20),
		strings.Repeat("x", 1<<20),
		strings.Repeat("VALUE r 0 1 1\r\na\r\n", 10000),
	} {
		var asked atomic.Bool
		sent := []byte(reply) // allocated before memory is measured
		s := memcached.New("s:1", wire.Options{
			Timeout: 5 * time.Second,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					if line, _ := bufio.NewReader(far).ReadString('\n'); strings.HasPrefix(line, "gets ") {
						asked.Store(true)
						_, _ = far.Write(sent[:len(sent)/2])
						_, _ = far.Write(sent[len(sent)/2:])
					}
				}()
				return near, nil
			},
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := s.Update(counter.Item([]byte("................")), func([]byte) ([]byte, int32) { return nil, 0 })
		runtime.ReadMemStats(&after)
		if !errors.Is(err, counter.ErrUnknown) || !asked.Load() {
			t.Errorf("%.30q: Update = %v, want ErrUnknown; asked: %t", reply, err, asked.Load())
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 100<<10 {
			t.Errorf("%.30q: %d bytes are allocated", reply, n)
		}
		_ = s.Close()
	}
}
