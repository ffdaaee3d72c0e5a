package ratelimit_test

import (
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/provider"
	"github.com/envoyproxy/ratelimit/src/redis"
	"github.com/envoyproxy/ratelimit/src/service"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	gostats "github.com/lyft/gostats"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
	"github.com/edgelimit/edge/rule/translate"
)

// A probe is a number of equal requests of a client at a time since the beginning of a day. Fields are header fields.
type probe struct {
	at                   time.Duration
	client, method, path string
	fields               map[string]string
	times                int
}

// get returns a probe of GET requests at the beginning of the day.
func get(client, path string, times int) probe { return probe{0, client, "GET", path, nil, times} }

// with is get with a header field.
func with(name, value string, times int) probe {
	return probe{0, "192.0.2.1", "GET", "/", map[string]string{name: value}, times}
}

// later returns p at that time.
func later(p probe, at time.Duration) probe {
	p.at = at
	return p
}

// A comparison is the list of descriptors of a domain, and the keys of those that Envoy sends for each request, as a
// route with such rate_limits does. If ratelimit refuses requests that the rules let pass, the translation says why.
type comparison struct {
	name, descriptors string
	sent              []string // each the keys of a descriptor's entries; generic_key=… has a value
	probes            []probe
	said              string
}

var comparisons = []comparison{
	{"a client", `[{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 3}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 5), get("192.0.2.2", "/", 3), get("192.0.2.1", "/", 1)}, ""},
	{"seconds", `[{key: remote_address, rate_limit: {unit: second, requests_per_unit: 2}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 3), later(get("192.0.2.1", "/", 3), 2*time.Second)}, ""},
	{"hours", `[{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 1), later(get("192.0.2.1", "/", 3), 59*time.Minute), later(get("192.0.2.1", "/", 3), 2*time.Hour)}, ""},
	{"days", `[{key: remote_address, rate_limit: {unit: day, requests_per_unit: 2}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 1), later(get("192.0.2.1", "/", 3), 23*time.Hour), later(get("192.0.2.1", "/", 3), 48*time.Hour)}, ""},
	{"months", `[{key: remote_address, rate_limit: {unit: month, requests_per_unit: 2}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 3)}, "rules have periods of at most"},
	{"a method", `[{key: method, value: POST, descriptors: [{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 2}}]}]`,
		[]string{"method remote_address"}, []probe{{0, "192.0.2.1", "POST", "/", nil, 3}, get("192.0.2.1", "/", 3)}, "Envoy's routes decide which requests are counted"},
	{"nested, with a limit on both levels", `[{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 4}, descriptors: [{key: path, rate_limit: {unit: hour, requests_per_unit: 2}}]}]`,
		[]string{"remote_address", "remote_address path"}, []probe{get("192.0.2.1", "/a", 3), get("192.0.2.1", "/b", 3)},
		"in Envoy, :path contains the query"},
	{"a key without a value", `[{key: path, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"path"}, []probe{get("192.0.2.1", "/a", 1), get("192.0.2.2", "/a", 2), get("192.0.2.1", "/b", 2), get("192.0.2.1", "/a?x", 3)},
		"in Envoy, :path contains the query"},
	{"a value and others", `[{key: x-tenant, value: big, rate_limit: {unit: hour, requests_per_unit: 4}}, {key: x-tenant, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"x-tenant"}, []probe{with("X-Tenant", "big", 5), with("X-Tenant", "a", 3), with("X-Tenant", "b", 2), get("192.0.2.1", "/", 3)},
		"ratelimit has other limits for x-tenant big"},
	{"a header", `[{key: x-tenant, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"x-tenant"}, []probe{with("X-Tenant", "a", 3), with("X-Tenant", "b", 2), get("192.0.2.1", "/", 3)}, "is treated as the request header x-tenant"},
	{"wildcards", `[{key: path, value: /api/*, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"path"}, []probe{get("192.0.2.1", "/api/a", 3), get("192.0.2.1", "/api/b", 2), get("192.0.2.1", "/other", 3)},
		"in Envoy, :path contains the query"},
	{"wildcards that share a count", `[{key: path, value: /api/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"path"}, []probe{get("192.0.2.1", "/api/a", 1), get("192.0.2.1", "/api/b", 2), get("192.0.2.1", "/other", 3)},
		"all values of path=/api/* share one count"},
	{"unlimited", `[{key: remote_address, value: 192.0.2.1, rate_limit: {unlimited: true}}, {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 4), get("192.0.2.2", "/", 3)}, "ratelimit has other limits for remote_address 192.0.2.1"},
	{"no requests at all", `[{key: remote_address, value: 192.0.2.1, rate_limit: {unit: hour, requests_per_unit: 0}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 1), get("192.0.2.2", "/", 1)}, ""},
	{"shadow_mode", `[{key: remote_address, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 3)}, ""},
	{"quota_mode", `[{key: remote_address, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 3)}, ""},
	{"replaces", `[{key: remote_address, rate_limit: {name: plain, unit: hour, requests_per_unit: 2}}, {key: x-vip, rate_limit: {name: vip, unit: hour, requests_per_unit: 4, replaces: [{name: plain}]}}]`,
		[]string{"remote_address", "x-vip"}, []probe{with("X-Vip", "a", 5), get("192.0.2.2", "/", 3)}, "ratelimit does not apply this limit to requests of x-vip of domain test"},
	{"replaces by an unlimited one", `[{key: remote_address, rate_limit: {name: plain, unit: hour, requests_per_unit: 2}}, {key: x-vip, rate_limit: {unlimited: true, replaces: [{name: plain}]}}]`,
		[]string{"remote_address", "x-vip"}, []probe{with("X-Vip", "a", 5), get("192.0.2.2", "/", 3)}, "ratelimit does not apply this limit to requests of x-vip"},
	{"several descriptors", `[{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 3}}, {key: method, rate_limit: {unit: hour, requests_per_unit: 5}}]`,
		[]string{"remote_address", "method"}, []probe{get("192.0.2.1", "/", 5), get("192.0.2.2", "/", 3)}, "ratelimit also counts requests that it refuses"},
	{"a route's limit", `[{key: generic_key, value: slow, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"generic_key=slow"}, []probe{get("192.0.2.1", "/", 2), get("192.0.2.2", "/", 1)}, "Envoy's routes decide which requests are generic_key=slow"},
	{"detailed_metric", `[{key: remote_address, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"remote_address"}, []probe{get("192.0.2.1", "/", 3), get("192.0.2.2", "/", 2)}, "detailed_metric is not covered"},
	{"a network", `[{key: masked_remote_address, rate_limit: {unit: hour, requests_per_unit: 2}}]`,
		[]string{"masked_remote_address"}, []probe{get("192.0.2.1", "/", 2), get("192.0.2.2", "/", 1)}, "masked_remote_address is a network"},
}

// Whatever ratelimit refuses, a rule refuses, or the translation says how it differs; a rule that blocks refuses nothing
// else.
func TestCountsAsRatelimit(t *testing.T) {
	logrus.SetLevel(logrus.FatalLevel)
	address := startRedis(t)
	for _, c := range comparisons {
		text := "domain: test\ndescriptors: " + c.descriptors + "\n"
		made, err := translate.Files("envoy-ratelimit", translate.File{Name: "ratelimit.yaml", Text: []byte(text)})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		set, err := rulefile.Parse("rules.yaml", enforced(made.Text()))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		said := strings.Join(strings.Fields(strings.ReplaceAll(string(made.Text()), "#", "")), " ")
		if !strings.Contains(said, c.said) {
			t.Errorf("%s: no comment contains %q:\n%s", c.name, c.said, made.Text())
		}
		loaded, err := load(text)
		if err != nil {
			t.Fatalf("%s: ratelimit: %v", c.name, err)
		}
		now := new(clock)
		limiter, counts := start(t, address, c.name, loaded, now), map[string]uint64{}
		for _, p := range c.probes {
			now.at = int64(p.at / time.Second)
			for n := range p.times {
				want, got := refusedByRatelimit(t, limiter, c.sent, p), refusedByRules(set, counts, p)
				if want && !got && c.said == "" {
					t.Errorf("%s: ratelimit refuses request %d of %v, but no rule does, without a comment in\n%s", c.name, n+1, p, made.Text())
				}
				if got && !want {
					t.Errorf("%s: ratelimit does not refuse request %d of %v, but a rule that blocks does:\n%s", c.name, n+1, p, made.Text())
				}
			}
		}
	}
}

// What ratelimit does not load is not translated.
func TestErrorsAsRatelimit(t *testing.T) {
	for name, descriptors := range map[string]string{
		"a duplicate":            `[{key: a, value: b}, {key: a, value: b}]`,
		"a duplicate by its key": `[{key: a_b}, {key: a, value: b}]`,
		"no key":                 `[{value: b}]`,
		"an unknown key":         `[{key: a, limit: {}}]`,
		"an unknown unit":        `[{key: a, rate_limit: {unit: fortnight, requests_per_unit: 1}}]`,
		"unlimited with a unit":  `[{key: a, rate_limit: {unlimited: true, unit: day, requests_per_unit: 1}}]`,
	} {
		text := "domain: test\ndescriptors: " + descriptors + "\n"
		_, ours := translate.Files("envoy-ratelimit", translate.File{Name: "ratelimit.yaml", Text: []byte(text)})
		if _, theirs := load(text); ours == nil || theirs == nil {
			t.Errorf("%s: ratelimit: %v, edge import: %v; want errors", name, theirs, ours)
		}
	}
}

// enforced returns rules as enforced by an operator whose only route sends the descriptors for all requests: then the
// rules that only log because of routes block.
func enforced(text []byte) []byte {
	var rules []string
	for r := range strings.SplitSeq(string(text), "\n\n") {
		if strings.Count(r, "# - only logs:") == strings.Count(r, "# - only logs: Envoy's routes decide which requests are") {
			r = strings.ReplaceAll(r, "action: log", "action: block")
		}
		rules = append(rules, r)
	}
	return []byte(strings.Join(rules, "\n\n"))
}

// refusedByRules reports whether a rule that blocks refuses a request. Like ratelimit, it counts in fixed windows, but
// only requests that no rule refuses.
func refusedByRules(set *rule.Set, counts map[string]uint64, p probe) (refused bool) {
	client := netip.MustParseAddr(p.client)
	r := rule.Request{Addr: client, Header: map[string][]string{}}
	for name, value := range p.fields {
		r.Header[name] = []string{value}
	}
	r.Admit(p.method, "a.test", p.path)
	r.Canonicalize(rule.ClientPrefix{})
	if access := set.Access(client); access != rule.Unlisted {
		return access == rule.Denied
	}
	var windows []string
	for _, found := range set.Match(&r, nil) {
		key, counted := found.AppendKey(nil, &r)
		for _, l := range found.Limits {
			if counted && found.Action == rule.Block {
				window := fmt.Sprint(l.Period, p.at/l.Period, string(key))
				windows = append(windows, window)
				refused = refused || counts[window] >= l.Threshold
			}
		}
	}
	if !refused {
		for _, window := range windows {
			counts[window]++
		}
	}
	return refused
}

// refusedByRatelimit asks ratelimit for the descriptors that Envoy would send. Envoy leaves out those with a value that
// the request does not have.
func refusedByRatelimit(t *testing.T, limiter pb.RateLimitServiceClient, sent []string, p probe) bool {
	r := &pb.RateLimitRequest{Domain: "test"}
	for _, keys := range sent {
		d := new(common.RateLimitDescriptor)
		complete := true
		for _, key := range strings.Fields(keys) {
			key, value := valueOf(key, p)
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
			complete = complete && value != ""
		}
		if complete {
			r.Descriptors = append(r.Descriptors, d)
		}
	}
	if len(r.Descriptors) == 0 {
		return false
	}
	answer, err := limiter.ShouldRateLimit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return answer.OverallCode == pb.RateLimitResponse_OVER_LIMIT
}

// valueOf returns the value that a request has for an entry's key.
func valueOf(entry string, p probe) (key, value string) {
	key, value, _ = strings.Cut(entry, "=")
	switch key {
	case "remote_address":
		value = p.client
	case "masked_remote_address":
		network, _ := netip.MustParseAddr(p.client).Prefix(24)
		value = network.String()
	case "method":
		value = p.method
	case "path":
		value = p.path
	case "generic_key":
	default:
		value = p.fields[http.CanonicalHeaderKey(key)]
	}
	return key, value
}

// startRedis starts a Redis server, and returns its socket.
func startRedis(t *testing.T) (address string) {
	address = harness.ReservePort(t)
	_, port, _ := net.SplitHostPort(address)
	p := harness.Start(t, exec.Command(harness.Installed(t, "redis-server"), "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"))
	p.Wait(p.Stdout, "Ready to accept connections")
	return address
}

// A clock shows a time in seconds since the beginning of a day, of ratelimit.
type clock struct{ at int64 }

func (c *clock) UnixNow() int64 { return 1_800_057_600 + c.at }

var manager = stats.NewStatManager(gostats.NewStore(gostats.NewNullSink(), false), settings.Settings{})

// A loaded configuration is the only event of its provider.
type loaded struct {
	config.RateLimitConfig
	events chan provider.ConfigUpdateEvent
}

func (l loaded) GetConfig() (config.RateLimitConfig, any)             { return l.RateLimitConfig, nil }
func (l loaded) ConfigUpdateEvent() <-chan provider.ConfigUpdateEvent { return l.events }
func (l loaded) Stop()                                                {}

// load loads a configuration as ratelimit does.
func load(text string) (l loaded, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	files := []config.RateLimitConfigToLoad{{Name: "ratelimit.yaml", ConfigYaml: config.ConfigFileContentToYaml("ratelimit.yaml", text)}}
	l = loaded{config.NewRateLimitConfigLoaderImpl().Load(files, manager, false), make(chan provider.ConfigUpdateEvent, 1)}
	l.events <- l
	return l, nil
}

// start starts ratelimit's service, which counts in Redis under keys that begin with a prefix, and returns a client.
func start(t *testing.T, address, prefix string, l loaded, now *clock) pb.RateLimitServiceClient {
	store := redis.NewClientImpl(manager.GetStatsStore(), false, "", "tcp", "single", address, 1, 0, 0, nil, false, nil, time.Minute, "", "")
	cache := redis.NewFixedRateLimitCacheImpl(store, nil, now, rand.New(rand.NewSource(1)), 0, nil, 0.8, prefix, manager, false)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(server, ratelimit.NewService(cache, l, manager, nil, now, false, false, false))
	go func() { _ = server.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		_ = store.Close()
	})
	return pb.NewRateLimitServiceClient(conn)
}
