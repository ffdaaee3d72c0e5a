package envoy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	rulefile "github.com/edgelimit/edge/rule/file"
)

// The documented configuration has fields that Envoy knows, with valid values, and its routes name rules of the
// documented rules file.
func TestDocumentedExample(t *testing.T) {
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
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of YAML, want the rules file and Envoy's configuration", len(blocks))
	}
	rules, err := rulefile.Parse("rules.yaml", []byte(blocks[0]))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Filters  []any `yaml:"http_filters"`
		Clusters []any `yaml:"clusters"`
		Routes   any   `yaml:"route_config"`
	}
	if err := yaml.Unmarshal([]byte(blocks[1]), &config); err != nil {
		t.Fatal(err)
	}
	type message interface {
		proto.Message
		ValidateAll() error
	}
	read := func(from any, to message) {
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
	for _, f := range config.Filters {
		filter := new(hcm.HttpFilter)
		read(f, filter)
		if any, err := filter.GetTypedConfig().UnmarshalNew(); err != nil {
			t.Error(err)
		} else if err := any.(message).ValidateAll(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range config.Clusters {
		read(c, new(cluster.Cluster))
	}
	routes := new(route.RouteConfiguration)
	read(config.Routes, routes)
	named := 0
	name := func(limits []*route.RateLimit) {
		for _, l := range limits {
			for _, a := range l.GetActions() {
				if key := a.GetGenericKey(); key != nil {
					named++
					if rules.Rule(key.GetDescriptorValue()) == nil {
						t.Errorf("no rule %s", key.GetDescriptorValue())
					}
				}
			}
		}
	}
	for _, host := range routes.GetVirtualHosts() {
		name(host.GetRateLimits())
		for _, r := range host.GetRoutes() {
			name(r.GetRoute().GetRateLimits())
		}
	}
	if named != len(rules.Rules()) {
		t.Errorf("%d actions name a rule, want one for each of %d", named, len(rules.Rules()))
	}
}
