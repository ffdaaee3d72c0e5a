package pop

import (
	"context"
	"net"

	"github.com/edgelimit/edge/counter/shard"
)

// spread distributes the connections of ln over pipes in turn, as the routers of a PoP do, until ln is closed. It does
// not proxy connections, so nodes see the client itself.
func spread(ln net.Listener, pipes []*shard.Pipe) {
	for i := 0; ; i++ {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		if !give(conn, pipes, i) {
			_ = conn.Close()
		}
	}
}

// give passes conn to the ith pipe, or to the next open one.
func give(conn net.Conn, pipes []*shard.Pipe, i int) bool {
	for j := range pipes {
		if pipes[(i+j)%len(pipes)].Give(context.Background(), conn) == nil {
			return true
		}
	}
	return false
}
