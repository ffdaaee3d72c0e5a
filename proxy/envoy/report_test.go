package envoy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy/envoy"
)

// describe returns the descriptors of a request, or of its end, that limits of Envoy's configuration ask for. cost is what
// the metadata says when the stream is done; without it there is no report.
func describe(t *testing.T, limits []*route.RateLimit, client, cost string, done bool) (descriptors []*ratelimit.RateLimitDescriptor) {
	t.Helper()
	for _, l := range limits {
		if l.GetApplyOnStreamDone() != done {
			continue
		}
		d := &ratelimit.RateLimitDescriptor{}
		for _, a := range l.GetActions() {
			entry := &ratelimit.RateLimitDescriptor_Entry{Key: "remote_address", Value: client}
			if key := a.GetGenericKey(); key != nil {
				entry.Key, entry.Value = key.GetDescriptorKey(), key.GetDescriptorValue()
			}
			d.Entries = append(d.Entries, entry)
		}
		switch hits := l.GetHitsAddend(); {
		case hits.GetFormat() == "%DYNAMIC_METADATA(edge:cost)%":
			n, err := strconv.ParseUint(cost, 10, 32)
			if err != nil {
				continue
			}
			withHits(n, d)
		case hits.GetFormat() == "":
			d.HitsAddend = hits.GetNumber()
		default:
			t.Fatalf("unknown format %s", hits.GetFormat())
		}
		descriptors = append(descriptors, d)
	}
	return descriptors
}

// The documented configuration asks before each request and reports its cost, over gRPC. All reports count, those of requests
// that Envoy has forwarded before the mitigation too.
func TestDocumentedReports(t *testing.T) {
	rules, config := documented(t, 1)
	limits := perRoute(t, readConfig(t, config))
	node := startNode(t, rules, "a")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := envoy.NewServer(envoy.New(node, slog.New(slog.DiscardHandler)))
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { server.Stop(context.Background()) })
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func(client, cost string, done bool) rls.RateLimitResponse_Code {
		t.Helper()
		descriptors := describe(t, limits, client, cost, done)
		if len(descriptors) == 0 {
			return ok // Envoy does not call
		}
		r, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "edge", Descriptors: descriptors})
		if err != nil {
			t.Fatal(err)
		}
		return r.OverallCode
	}
	counted := func(want float64) {
		t.Helper()
		harness.Until(t, fmt.Sprint(want, " are counted"), 2*time.Minute, time.Millisecond, func() bool {
			return metric(t, node, "edge_requests_counted_total", "points") == want
		})
	}
	const client = "192.0.2.1"
	for range 2000 {
		if got := call(client, "", false); got != ok {
			t.Fatalf("asking counts: %v", got)
		}
	}
	call(client, "", true)
	call(client, "0", true)
	counted(0)
	call(client, "1000", true)
	if got := call(client, "", false); got != ok {
		t.Errorf("at the threshold: %v", got)
	}
	call(client, "1", true)
	harness.Until(t, "the client is refused", 2*time.Minute, time.Millisecond, func() bool { return call(client, "", false) == over })
	for range 3 {
		if got := call(client, "500", true); got != ok {
			t.Errorf("a report about a client that is mitigated by now: %v", got)
		}
	}
	counted(2501)
	if got := call("192.0.2.2", "", false); got != ok {
		t.Errorf("another client: %v", got)
	}
}

// Each report counts once, whatever kind of rule it names, whether or not the rule refuses its key, and whatever else
// is in the call.
func TestReports(t *testing.T) {
	for _, test := range []struct {
		name, count, entries string
		hits                 uint64
		want                 float64
	}{
		{"a request", "", "", 5, 0},
		{"a marked report", "", " report=true", 5, 5},
		{"with a cost", "count: {cost: 3}, ", " report=true", 5, 15},
		{"of a response", "count: {cost_header: X-Cost}, ", "", 5, 5},
		{"of a response, with a default cost", "count: {cost_header: X-Cost, cost: 3}, ", " report=true", 5, 5},
		{"of a status", "count: {statuses: [401]}, ", "", 1, 1},
		{"of nothing", "count: {statuses: [401]}, ", " report=true", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := serve(t, fmt.Sprintf(`rules:
- {id: r, %scharacteristics: [ip], limits: [{threshold: 3, period: 1m}], action: block, mitigation_timeout: 1m}
- {id: other, characteristics: [ip], limits: [{threshold: 3, period: 1m}], action: block, mitigation_timeout: 1m}`, test.count))
				describing := func(entries string) *ratelimit.RateLimitDescriptor {
					d := descriptor()
					for entry := range strings.FieldsSeq(entries + " ip=192.0.2.1") {
						key, value, _ := strings.Cut(entry, "=")
						d.Entries = append(d.Entries, descriptor(key, value).Entries...)
					}
					return d
				}
				s.ask(0, withHits(10, describing("rule=r report=true")), withHits(10, describing("rule=other")))
				expect(t, "asking", s.ask(0, withHits(0, describing("rule=r")), withHits(0, describing("rule=other"))), over, over, over)
				before := metric(t, s.node, "edge_requests_counted_total", "r")
				s.ask(0, withHits(0, describing("rule=r")), withHits(test.hits, describing("rule=r"+test.entries)), withHits(0, describing("rule=other")))
				if got := metric(t, s.node, "edge_requests_counted_total", "r") - before; got != test.want {
					t.Errorf("%v counted, want %v", got, test.want)
				}
			})
		})
	}
	t.Run("without hits", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			s := serve(t, "rules: [{id: r, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 3, period: 1m}]}]")
			for range 9 {
				expect(t, "asking", s.ask(0, descriptor("rule", "r", "ip", "192.0.2.1")), ok, ok)
			}
			for range 4 {
				expect(t, "reporting", s.ask(0, descriptor("rule", "r", "report", "", "ip", "192.0.2.1")), ok, ok)
			}
			expect(t, "over the limit", s.ask(0, descriptor("rule", "r", "ip", "192.0.2.1")), over, over)
		})
	})
}
