package envoy

import (
	"context"
	"net"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// maxMessage is the maximum size of a request, in bytes. Envoy makes descriptors from headers of at most 60 KiB.
const maxMessage = 1 << 20

// A Server serves a Service over gRPC, with the services for health and reflection.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
}

// NewServer returns a Server, which is healthy until Stop. Health checks find it under its own name, the empty name,
// and ratelimit, the name that envoyproxy/ratelimit uses.
func NewServer(s *Service) *Server {
	server := &Server{grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage)), health.NewServer()}
	rls.RegisterRateLimitServiceServer(server.grpc, s)
	healthpb.RegisterHealthServer(server.grpc, server.health)
	for _, name := range []string{rls.RateLimitService_ServiceDesc.ServiceName, "ratelimit"} {
		server.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	reflection.Register(server.grpc)
	return server
}

// Serve answers the connections of ln until Stop, which closes it.
func (s *Server) Serve(ln net.Listener) error { return s.grpc.Serve(ln) }

// Stop makes health checks fail, closes the listeners, tells clients to go elsewhere, and waits for their requests.
// When ctx is done, it cuts off the remaining ones.
func (s *Server) Stop(ctx context.Context) {
	s.health.Shutdown()
	defer context.AfterFunc(ctx, s.grpc.Stop)()
	s.grpc.GracefulStop()
}
