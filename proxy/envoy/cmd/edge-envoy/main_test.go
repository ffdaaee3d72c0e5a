package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgelimit/edge/internal/harness"
)

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no rules", nil, "edge-envoy: missing setting rules\nedge-envoy: hint: --rules rules.yaml"},
		{"an address without a port", []string{"--rules", "r.yaml", "--shard", "10.0.0.1"}, `edge-envoy: invalid --shard "10.0.0.1": must be HOST:PORT`},
		{"shards without a secret", []string{"--rules", "r.yaml", "--shard", "10.0.0.1:11211"}, "edge-envoy: --shard needs --secret-file"},
		{"an argument", []string{"rules.yaml"}, `edge-envoy: unknown argument "rules.yaml": all arguments are flags`},
		{"no file", []string{"--rules", "no.yaml"}, "no.yaml"},
		{"a setting of the proxy", []string{"--origin", "http://127.0.0.1"}, "edge-envoy: flag provided but not defined: -origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got bytes.Buffer
			report(&got, run(t.Context(), c.args, io.Discard))
			if !strings.Contains(got.String(), c.want) {
				t.Errorf("%q, want %q", got.String(), c.want)
			}
		})
	}
}

// The command serves until it is told to stop, and reloads changed rules.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	rules, socket := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "envoy.sock")
	write := func(id string) {
		text := "rules: [{id: " + id + ", characteristics: [ip], limits: [{threshold: 9, period: 1h}], action: block, mitigation_timeout: 0s}]\n"
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("before")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var log bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"--rules", rules, "--listen", "unix:" + socket, "--metrics-listen", "", "--admin-listen", "", "--name", "a"}, &log)
	}()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	limit := func(id string) *rls.RateLimitResponse_RateLimit {
		r, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "rule", Value: id}, {Key: "remote_address", Value: "192.0.2.1"}},
		}}}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return r.Statuses[0].CurrentLimit
	}
	if limit("before").GetName() != "before" {
		t.Error("the rule \"before\" is not in force")
	}
	write("after")
	harness.Until(t, "the changed rules are loaded", 2*time.Minute, time.Millisecond, func() bool { return limit("after") != nil })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, want := range []string{`msg="node started" name=a`, "no rule", `msg="node stopping"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q, want %q in it", log.String(), want)
		}
	}
}
