package envoy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/proxy/envoy"
)

// listen starts a node with a gRPC server at addr, and returns the server and a connection to it.
func listen(t *testing.T, addr, name string, shards ...string) (*envoy.Server, *grpc.ClientConn) {
	t.Helper()
	n := startNode(t, "rules: [{id: client, characteristics: [ip], limits: [{threshold: 20, period: 1h}], action: block, mitigation_timeout: 1h}]", name, shards...)
	ln, err := pop.ListenAt(addr, 0)
	if err != nil {
		t.Fatal(err)
	}
	server := envoy.NewServer(envoy.New(n, slog.New(slog.DiscardHandler)))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	target := ln.Addr().String()
	if ln.Addr().Network() == "unix" {
		target = "unix:" + target
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return server, conn
}

// shouldLimit asks about a client over gRPC, and counts it this many times.
func shouldLimit(t *testing.T, conn *grpc.ClientConn, ip string, times uint64) rls.RateLimitResponse_Code {
	t.Helper()
	r, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), &rls.RateLimitRequest{
		Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{withHits(times, descriptor("rule", "client", "remote_address", ip))},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.OverallCode
}

// Two nodes of a PoP refuse a client that exceeds the limit at both nodes together. When memcached is dead they
// continue, each with its own counts.
func TestPoP(t *testing.T) {
	memcached := harness.StartMemcached(t)
	_, a := listen(t, "127.0.0.1:0", "a", memcached.Addr)
	_, b := listen(t, "127.0.0.1:0", "b", memcached.Addr)
	nodes := []*grpc.ClientConn{a, b}
	refused := func(conn *grpc.ClientConn, client string) bool { return shouldLimit(t, conn, client, 0) == over }
	// exceed makes a client exceed the limit at both together, and reports whether both refuse it then.
	exceed := func(client string) bool {
		for i := range 10 {
			for _, conn := range nodes {
				if got := shouldLimit(t, conn, client, 1); got != ok {
					t.Errorf("request %d: %v", i, got)
				}
			}
		}
		shouldLimit(t, a, client, 1) // the 21st
		const maxQueries = 2000      // queries after which a count must have been lost because memcached was late
		for i := 0; !refused(a, client) && !refused(b, client); i++ {
			if i == maxQueries {
				return false
			}
			time.Sleep(time.Millisecond)
		}
		for _, conn := range nodes {
			shouldLimit(t, conn, client, 1) // unless it refuses, it counts, and learns the other's counts
			for i := 0; !refused(conn, client); i++ {
				if i == maxQueries {
					return false
				}
				time.Sleep(time.Millisecond)
			}
		}
		return true
	}
	client, tries := "", 0
	harness.Until(t, "two nodes refuse a client", 2*time.Minute, 0, func() bool {
		tries++
		client = fmt.Sprint("192.0.2.", tries)
		return exceed(client)
	})

	memcached.Kill()
	const other = "198.51.100.1"
	for _, conn := range nodes {
		if got := shouldLimit(t, conn, client, 1); got != over {
			t.Errorf("the mitigated client: %v", got)
		}
		for range 20 {
			if got := shouldLimit(t, conn, other, 1); got != ok {
				t.Errorf("another client, below its limit: %v", got)
			}
		}
		harness.Until(t, "the node refuses by its own counts", 2*time.Minute, 0, func() bool { return shouldLimit(t, conn, other, 1) == over })
	}
}

// Load balancers and people use health and reflection, over a Unix socket too.
func TestServer(t *testing.T) {
	ctx := context.Background()
	server, conn := listen(t, "unix:"+filepath.Join(t.TempDir(), "envoy.sock"), "a")
	if got := shouldLimit(t, conn, "192.0.2.1", 1); got != ok {
		t.Errorf("first request: %v", got)
	}
	_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "edge"})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("no descriptors: %v", err)
	}
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		r, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: name})
		if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v %v", name, r, err)
		}
	}
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.GetListServicesResponse().GetService(), func(s *reflectionpb.ServiceResponse) bool {
		return s.Name == "envoy.service.ratelimit.v3.RateLimitService"
	}) {
		t.Errorf("reflection lists %v", list)
	}

	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health before Stop: %v %v", r, err)
	}
	done, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		server.Stop(done)
		close(stopped)
	}()
	if r, err := watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health during Stop: %v %v", r, err)
	}
	cancel() // the watch would continue
	<-stopped
	if _, err := net.Dial("unix", conn.Target()[len("unix:"):]); err == nil {
		t.Error("the server still listens")
	}
}
