//go:build edgeguard

package memcached

import (
	"net"
	"runtime"
	"strings"
)

func guard(conn net.Conn) net.Conn { return guarded{conn} }

// guarded is a connection that panics if a decision uses it.
type guarded struct{ net.Conn }

func (c guarded) Read(p []byte) (int, error) {
	mustNotDecide("read")
	return c.Conn.Read(p)
}

func (c guarded) Write(p []byte) (int, error) {
	mustNotDecide("write")
	return c.Conn.Write(p)
}

// mustNotDecide panics if the limiter's decision is among the callers.
func mustNotDecide(what string) {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/pop/limit") && strings.HasSuffix(f.Function, ".Decide") {
			panic(violation("memcached: a socket " + what + " is reached from " + f.Function))
		}
		if !more {
			return
		}
	}
}

// A violation is what the guard panics with.
type violation string

// passOn panics again with a violation that was recovered.
func passOn(recovered any) {
	if v, ok := recovered.(violation); ok {
		panic(v)
	}
}
