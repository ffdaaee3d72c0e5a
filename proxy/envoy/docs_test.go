package envoy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// documented returns the nth example of docs/envoy.md: a rules file, and a part of Envoy's configuration.
func documented(t *testing.T, nth int) (rules, config string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for i, part := range strings.Split(string(page), "```") {
		if text, ok := strings.CutPrefix(part, "yaml\n"); ok && i%2 == 1 {
			blocks = append(blocks, text)
		}
	}
	if len(blocks) != 4 {
		t.Fatalf("%d blocks of YAML, want a rules file and a configuration of Envoy, twice", len(blocks))
	}
	return blocks[2*nth], blocks[2*nth+1]
}

// A message is one of the types of Envoy's configuration.
type message interface {
	proto.Message
	ValidateAll() error
}

// read reads a part of Envoy's configuration.
func read(t *testing.T, from any, to message) {
	t.Helper()
	text, err := json.Marshal(from)
	if err == nil {
		err = protojson.Unmarshal(text, to)
	}
	if err == nil {
		err = to.ValidateAll()
	}
	if err != nil {
		t.Error(err)
	}
}

// unpack returns the message in a part of Envoy's configuration.
func unpack(t *testing.T, packed *anypb.Any) message {
	t.Helper()
	unpacked, err := packed.UnmarshalNew()
	if err == nil {
		err = unpacked.(message).ValidateAll()
	}
	if err != nil {
		t.Error(err)
	}
	return unpacked.(message)
}

// readConfig reads Envoy's configuration, and returns its routes.
func readConfig(t *testing.T, text string) *route.RouteConfiguration {
	t.Helper()
	var config struct {
		Filters  []any `yaml:"http_filters"`
		Clusters []any `yaml:"clusters"`
		Routes   any   `yaml:"route_config"`
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	for _, f := range config.Filters {
		filter := new(hcm.HttpFilter)
		read(t, f, filter)
		unpack(t, filter.GetTypedConfig())
	}
	for _, c := range config.Clusters {
		read(t, c, new(cluster.Cluster))
	}
	routes := new(route.RouteConfiguration)
	read(t, config.Routes, routes)
	return routes
}

// perRoute returns the rate limits of the only route of a configuration.
func perRoute(t *testing.T, routes *route.RouteConfiguration) []*route.RateLimit {
	t.Helper()
	packed := routes.GetVirtualHosts()[0].GetRoutes()[0].GetTypedPerFilterConfig()["envoy.filters.http.ratelimit"]
	return unpack(t, packed).(*filter.RateLimitPerRoute).GetRateLimits()
}

// The documented configurations have fields that Envoy knows, with valid values, and their routes name rules of the
// documented rules files.
func TestDocumentedExamples(t *testing.T) {
	for nth, actions := range []int{2, 2} {
		text, config := documented(t, nth)
		rules, err := rulefile.Parse("rules.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		routes := readConfig(t, config)
		var limits []*route.RateLimit
		for _, host := range routes.GetVirtualHosts() {
			limits = append(limits, host.GetRateLimits()...)
			for _, r := range host.GetRoutes() {
				limits = append(limits, r.GetRoute().GetRateLimits()...)
			}
		}
		if nth == 1 {
			limits = perRoute(t, routes)
		}
		named := map[*rule.Rule]bool{}
		for _, l := range limits {
			named[rules.Rule(l.GetActions()[0].GetGenericKey().GetDescriptorValue())] = true
		}
		if len(limits) != actions || named[nil] || len(named) != len(rules.Rules()) {
			t.Errorf("example %d: %d limits name %d of %d rules", nth, len(limits), len(named), len(rules.Rules()))
		}
	}
}

// The patch in docs/envoy-gateway.md adds a cluster, a filter and limits that Envoy accepts.
func TestDocumentedPatch(t *testing.T) {
	page, err := os.ReadFile("../../docs/envoy-gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "kind: EnvoyPatchPolicy\n")
	text, _, _ = strings.Cut(text, "```")
	var policy struct {
		Spec struct {
			Patches []struct {
				Type      string
				Operation struct{ Value any }
			} `yaml:"jsonPatches"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &policy); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, p := range policy.Spec.Patches {
		kind := p.Type[strings.LastIndexByte(p.Type, '.')+1:]
		kinds = append(kinds, kind)
		switch kind {
		case "Cluster":
			read(t, p.Operation.Value, new(cluster.Cluster))
		case "Listener":
			f := new(hcm.HttpFilter)
			read(t, p.Operation.Value, f)
			unpack(t, f.GetTypedConfig())
		case "RouteConfiguration":
			for _, limit := range p.Operation.Value.([]any) {
				read(t, limit, new(route.RateLimit))
			}
		}
	}
	if got, want := strings.Join(kinds, " "), "Cluster Listener RouteConfiguration"; got != want {
		t.Errorf("patches of %s, want %s", got, want)
	}
}
