package shard_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
)

func TestMetrics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		ln := shard.NewPipe()
		newServer(t, shard.Options{MaxBytes: smallest, MaxConns: 1, Registerer: reg}, ln)
		c := dial(t, ln)
		fill(c, smallestItems+2)
		c.expect("get k5 nothing\r\n", "VALUE k5 0 1\r\n1\r\nEND\r\n")
		c.expect("incr k5 1\r\nincr nothing 1\r\n", "2\r\nNOT_FOUND\r\n")
		c.expect("delete k5\r\n", "DELETED\r\n")
		dial(t, ln).line() // refused
		synctest.Wait()

		problems, err := testutil.GatherAndLint(reg)
		if err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP edge_shard_server_bytes Memory used by items, including overhead.
# TYPE edge_shard_server_bytes gauge
edge_shard_server_bytes 65376
# HELP edge_shard_server_commands_total Commands executed, by kind; a get counts once per key.
# TYPE edge_shard_server_commands_total counter
edge_shard_server_commands_total{op="delete"} 1
edge_shard_server_commands_total{op="flush"} 0
edge_shard_server_commands_total{op="get"} 2
edge_shard_server_commands_total{op="incr"} 2
edge_shard_server_commands_total{op="set"} 632
# HELP edge_shard_server_connections Open client connections.
# TYPE edge_shard_server_connections gauge
edge_shard_server_connections 1
# HELP edge_shard_server_connections_refused_total Connections refused because there were too many.
# TYPE edge_shard_server_connections_refused_total counter
edge_shard_server_connections_refused_total 1
# HELP edge_shard_server_evictions_total Items evicted before they expired, to make room.
# TYPE edge_shard_server_evictions_total counter
edge_shard_server_evictions_total 3
# HELP edge_shard_server_items Items in memory, including expired ones that have not been accessed since.
# TYPE edge_shard_server_items gauge
edge_shard_server_items 628
# HELP edge_shard_server_limit_bytes Maximum memory for items; beyond it, items are evicted.
# TYPE edge_shard_server_limit_bytes gauge
edge_shard_server_limit_bytes 65536
`)); err != nil {
			t.Error(err)
		}
	})
}
