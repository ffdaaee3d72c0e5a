package envoy_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edge/pop"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A gRPC client of a node that is the proxy of a gRPC server gets the status of a refusal, and the fields that say how
// long to wait.
func TestRefusedCalls(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	origin := grpc.NewServer()
	healthpb.RegisterHealthServer(origin, health.NewServer())
	go func() { _ = origin.Serve(ln) }()
	t.Cleanup(origin.Stop)
	for _, test := range []struct {
		name, rules string
		want        codes.Code
		message     string
		wait        string // grpc-retry-pushback-ms
	}{
		{"blocked", `rules: [{id: all, characteristics: [ip], limits: [{threshold: 3, period: 1h}], mitigation_timeout: 2h,
			response: {max_retry_after: 1h, headers: {X-Support: "{id}"}}}]`, codes.ResourceExhausted, "too many requests", "3600000"},
		{"denied", "rules: []\ndeny: [127.0.0.0/8]", codes.PermissionDenied, "forbidden", ""},
		{"unavailable", "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000000, period: 1h}], on_failure: closed}]", codes.Unavailable, "temporarily unavailable", "1000"},
	} {
		rules, err := rulefile.Parse("rules.yaml", []byte(test.rules))
		if err != nil {
			t.Fatal(err)
		}
		o := pop.Options{Name: "edge", Secret: "sixteen bytes at least", Rules: rules, Origin: "h2c://" + ln.Addr().String(), Logger: slog.New(slog.DiscardHandler)}
		if test.want == codes.Unavailable {
			o.Shards = []string{"127.0.0.1:1"} // nobody listens
		}
		n, err := pop.New(o)
		if err == nil {
			err = n.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		front, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			err = n.Serve(front)
		}
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(front.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		var trailer metadata.MD
		for err = nil; err == nil; {
			_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
		}
		got := status.Convert(err)
		if got.Code() != test.want || got.Message() != test.message {
			t.Errorf("%s: %v, want %v %q", test.name, err, test.want, test.message)
		}
		if wait := trailer["grpc-retry-pushback-ms"]; len(wait) > 1 || len(wait) == 1 && wait[0] != test.wait || len(wait) == 0 && test.wait != "" {
			t.Errorf("%s: grpc-retry-pushback-ms %q, want %q", test.name, wait, test.wait)
		}
		if id := trailer["refusal-id"]; test.want == codes.ResourceExhausted && (len(id) != 1 || len(trailer["x-support"]) != 1 || trailer["x-support"][0] != id[0]) {
			t.Errorf("%s: %v, want the ID of the refusal in two fields", test.name, trailer)
		}
		cancel()
		_ = conn.Close()
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
