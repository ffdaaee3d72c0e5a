package pop

import (
	"context"
	"crypto/rand"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter/shard"
)

// innerShard is the shard of a node that is given none. It is reached without sockets.
type innerShard struct {
	server *shard.Server
	pipe   *shard.Pipe
}

func newInnerShard(reg prometheus.Registerer) (*innerShard, error) {
	server, err := shard.New(shard.Options{Registerer: reg})
	if err != nil {
		return nil, err
	}
	return &innerShard{server: server, pipe: shard.NewPipe()}, nil
}

// run serves the shard until ctx is done.
func (s *innerShard) run(ctx context.Context) {
	_ = s.server.Serve(ctx, s.pipe) // a pipe accepts until it is closed
}

// randomSecret returns a secret that nobody knows.
func randomSecret() string { return rand.Text() }
