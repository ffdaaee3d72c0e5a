package gossip_test

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/edgelimit/edge/pop/gossip"
)

// Two nodes meet, and one sends the other a message.
func Example() {
	received := make(chan string, 1)
	start := func(o gossip.Options) (*gossip.Gossip, error) {
		o.Listen, o.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
		g, err := gossip.New(o)
		if err != nil {
			return nil, err
		}
		return g, g.Start(gossip.Handler{
			Receive: func(from string, message []byte, _ time.Duration) error {
				received <- from + ": " + string(message)
				return nil
			},
			Status:        func() []byte { return nil },
			ReceiveStatus: func(string, []byte, bool) error { return nil },
		}, nil)
	}
	one, err := start(gossip.Options{Name: "one"})
	if err != nil {
		fmt.Println(err)
		return
	}
	two, err := start(gossip.Options{Name: "two", Join: []string{one.Addr()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for len(one.Peers()) == 0 {
		time.Sleep(time.Millisecond)
	}
	one.Send([]byte("hello"))
	fmt.Println(<-received)
	if err := two.Stop(); err != nil {
		fmt.Println(err)
	}
	if err := one.Stop(); err != nil {
		fmt.Println(err)
	}
	// Output: one: hello
}
