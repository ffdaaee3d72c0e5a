package operate

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// eventsPath is the path of Options.Events.
const eventsPath = "/api/v1/events"

// description is the API in OpenAPI 3.1. A test keeps it equal to the routes:
// go test ./operate -run TestOpenAPI -update
//
//go:embed openapi.json
var description []byte

// A route is an operation of the API.
type route struct {
	method, path, summary string

	change         bool // the operation always needs a token, and is logged
	params, result reflect.Type
	serve          func(o Operations, values url.Values) (any, error)
}

// name returns the name of the route in log lines and in the description, such as mitigations-lift.
func (r *route) name() string {
	path := strings.TrimPrefix(strings.TrimPrefix(r.path, "/api/v1/"), "/-/")
	name := strings.ReplaceAll(strings.ReplaceAll(path, "/", "-"), "{key}", "one")
	if r.change && name == "mitigations" {
		name += "-add"
	}
	return name
}

// on returns a route that serves the results of do.
func on[P, R any](method, path, summary string, do func(Operations, P) (R, error)) route {
	return route{method, path, summary, method != http.MethodGet, reflect.TypeFor[P](), reflect.TypeFor[R](), func(o Operations, values url.Values) (any, error) {
		var p P
		if err := decode(values, reflect.ValueOf(&p).Elem()); err != nil {
			return nil, err
		}
		return do(o, p)
	}}
}

// get returns a route without parameters that serves the results of do.
func get[R any](path, summary string, do func(Operations) R) route {
	return on(http.MethodGet, path, summary, func(o Operations, _ struct{}) (R, error) { return do(o), nil })
}

// why holds the parameter of changes that have no other one.
type why struct {
	Reason string `query:"reason" doc:"why, for the log"`
}

// byKey holds the parameters of operations on a key.
type byKey struct {
	Key string `query:"key" doc:"the key, as in lists and log lines"`
}

// byValues holds the parameters of operations on a client.
type byValues struct {
	Values map[string]string `query:"*" doc:"a key; the id of a refusal; a rule and the values of its characteristics, such as rule=login&ip=203.0.113.7&header:x-api-key=abc; an ip or a network alone; or values without a rule, for all rules that count by them"`
}

// byShard holds the parameters of operations that change a shard.
type byShard struct {
	Shard  string `query:"shard" required:"true" doc:"its address, as in lists"`
	Reason string `query:"reason" doc:"why, for the log"`
}

var routes = []route{
	get("/api/v1/openapi.json", "This description", func(Operations) json.RawMessage { return description }),
	get("/api/v1/status", "Whether the node and its PoP are healthy", Operations.Status),
	get("/api/v1/rules", "The rules in force, with their statistics", func(o Operations) Rules {
		all := o.Rules()
		all.Files = o.Files()
		return all
	}),
	on("GET", "/api/v1/mitigations", "A page of the mitigations and lifts", Operations.Mitigations),
	on("GET", "/api/v1/mitigations/{key}", "One mitigation, or the lift of one", func(o Operations, p byKey) (Mitigation, error) {
		return o.Mitigation(p.Key)
	}),
	on("POST", "/api/v1/mitigations", "Start a mitigation by hand, on all nodes", Operations.Add),
	on("POST", "/api/v1/mitigations/lift", "End one mitigation, on all nodes", Operations.Lift),
	on("POST", "/api/v1/mitigations/lift-all", "End the mitigations of a selection, on all nodes", Operations.LiftAll),
	on("GET", "/api/v1/explain", "Why a client is refused, or how far it is from each limit", func(o Operations, p byValues) (Explanation, error) {
		return o.Explain(p.Values)
	}),
	get("/api/v1/shards", "The shards, in the order of their addresses", Operations.Shards),
	on("POST", "/api/v1/shards/drain", "Take a shard out of the ring of all nodes", func(o Operations, p byShard) (Shards, error) {
		err := o.Drain(p.Shard, true)
		return o.Shards(), err
	}),
	on("POST", "/api/v1/shards/undrain", "Let a shard own keys again", func(o Operations, p byShard) (Shards, error) {
		err := o.Drain(p.Shard, false)
		return o.Shards(), err
	}),
	get("/api/v1/changes", "The last changes that operators made through this node, the newest first", Operations.Changes),
	get("/api/v1/nodes", "The nodes of the PoP, as this one knows them", Operations.Nodes),
	on("GET", "/api/v1/decisions", "The last decisions in the log's sample, the newest first", Operations.Decisions),
	on("POST", "/-/reload", "Load the node's files again", func(o Operations, _ why) (Reloaded, error) { return o.Reload() }),
}

// find returns the route for a method and a path, with the value of {key}, or the methods that the path allows.
func find(method, path string) (found *route, key string, methods []string) {
	if !slices.ContainsFunc(routes, func(r route) bool { return r.path == path }) {
		i := strings.LastIndexByte(path, '/') + 1
		path, key = path[:i]+"{key}", path[i:]
	}
	for i := range routes {
		if r := &routes[i]; r.path == path {
			methods = append(methods, r.method)
			if r.method == method || r.method == http.MethodGet && method == http.MethodHead {
				found = r
			}
		}
	}
	slices.Sort(methods)
	return found, key, methods
}
