package shard_test

import (
	"context"
	"fmt"
	"net"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/edgelimit/edge/counter/shard"
)

// Any memcached client can use the server, here in the same process, without a socket.
func Example() {
	server := shard.New(shard.Options{MaxBytes: 1 << 20})
	ctx, stop := context.WithCancel(context.Background())
	pipe := shard.NewPipe()
	done := make(chan error)
	go func() { done <- server.Serve(ctx, pipe) }()

	client := memcache.New("127.0.0.1:11211")
	client.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return pipe.Dial(ctx, network, addr)
	}
	fmt.Println(client.Add(&memcache.Item{Key: "hits", Value: []byte("41"), Expiration: 60}))
	fmt.Println(client.Increment("hits", 1))
	client.Close()

	stop()
	fmt.Println(<-done)
	// Output:
	// <nil>
	// 42 <nil>
	// <nil>
}
