package translate

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// descriptorKeys and rateLimitKeys are the keys of a descriptor and of its rate_limit. ratelimit accepts
// all of them in both places, and ignores those in the wrong one.
var (
	descriptorKeys = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric",
		"value_to_metric", "share_threshold", "quota_mode", "metadata"}
	rateLimitKeys = []string{"unit", "requests_per_unit", "unlimited", "name", "replaces", "unit_multiplier", "algorithm"}
)

// checkKeys checks the keys of v, a descriptor or a rate_limit. right are valid there, and wrong are
// ignored. It returns the ignored ones.
func (v value) checkKeys(noun string, right, wrong []string) (ignored []string) {
	for _, kv := range v.pairs() {
		switch name := kv[0].Value; {
		case slices.Contains(wrong, name):
			ignored = append(ignored, name)
		case !slices.Contains(right, name):
			fail(kv[0], prose.Suggest(name, right), "unknown key %q in %s", name, noun)
		}
	}
	return ignored
}

// units are the units of envoyproxy/ratelimit. Rules have periods of at most a week.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
}

// maxDescriptors is the maximum number of descriptors in all files, with aliases resolved.
const maxDescriptors = 1 << 18

// Keys of entries whose meaning is fixed by Envoy or by convention.
var (
	ipEntries    = []string{"remote_address", "masked_remote_address"}
	requestKinds = [...]rule.Kind{byHost: rule.Host, byMethod: rule.Method, byPath: rule.Path}
	// Envoy's routes set the values of these.
	routeEntries = []string{"generic_key", "header_match", "query_match", "destination_cluster", "source_cluster"}
)

// An entry is a descriptor on the path to a limit.
type entry struct {
	descriptor value
	key, value string
	siblings   []string // values with their own descriptors
	shared     bool     // share_threshold
}

// wild reports whether e has several values that are counted separately.
func (e entry) wild() bool { return strings.Contains(e.value, "*") && !e.shared }

func (e entry) String() string {
	if e.value == "" {
		return e.key
	}
	return e.key + "=" + e.value
}

// A ratelimit translates the configuration of a domain of envoyproxy/ratelimit.
type ratelimit struct {
	*Translation
	domain      string
	domains     map[string]bool
	descriptors int                 // number of descriptors read, of all domains
	replacing   map[string][]string // titles of the limits that replace a limit, by its name
}

func translateRatelimit(t *Translation, files []File) {
	r := &ratelimit{Translation: t, domains: map[string]bool{}, replacing: map[string][]string{}}
	for _, f := range files {
		for _, root := range documents(f.Text, position{file: &f}) {
			r.readManifest(root)
		}
	}
	require(len(r.domains) > 0, position{file: &files[0]}, domainHint, "the file has no descriptors")
	for _, d := range t.rules {
		for _, title := range r.replacing[d.id] {
			d.logs.Add("ratelimit does not apply this limit to requests of %s, which replaces it", title)
		}
	}
	if len(t.rules) > 0 {
		t.general.Add("ratelimit counts in fixed windows, so twice the limit may pass around the end of one. Edge " +
			"estimates the requests of the last period, and refuses such bursts.")
		t.general.Add("ratelimit also counts requests that it refuses. Edge does not, so requests that one limit refuses " +
			"do not use up another.")
		t.general.Add("ratelimit uses the most specific descriptor for a request. In edge, every rule that matches counts.")
		t.noteAddresses("Envoy")
	}
}

// readManifest reads a manifest. It may be a domain, or a ConfigMap that contains domains.
func (t *ratelimit) readManifest(root value) {
	switch kind := root.text("kind"); {
	case kind == "ConfigMap":
		for _, kv := range root.child("data").pairs() {
			if strings.Contains(kv[1].text(), "domain:") {
				for _, inner := range kv[1].documents() {
					t.readManifest(inner)
				}
			}
		}
	case kind == "" || root.child("descriptors").Node != nil:
		t.readDomain(root)
	default:
		t.nameOthers(root)
	}
}

const domainHint = "import the file of Envoy's rate limit service, whose keys are domain and descriptors"

func (t *ratelimit) readDomain(root value) {
	require(root.is(yaml.MappingNode), root, "begin it with domain:", "the file is not a mapping")
	for _, kv := range root.pairs() {
		known := slices.Contains([]string{"domain", "descriptors", "name"}, kv[0].Value)
		require(known, kv[0], domainHint, "unknown key %q", kv[0].Value)
	}
	t.domain = root.text("domain")
	require(t.domain != "", root, "write domain: and a name", "the domain is missing")
	require(!t.domains[t.domain], root.child("domain"),
		"write its descriptors in one file", "the domain %q is a duplicate: ratelimit does not load it", t.domain)
	t.domains[t.domain] = true
	t.readDescriptors(root.child("descriptors"), nil)
}

// readDescriptors reads a list of descriptors, whose parents are path.
func (t *ratelimit) readDescriptors(list value, path []entry) {
	require(list.text() == "" && !list.is(yaml.MappingNode), list, "write a list", "descriptors is not a list")
	t.descriptors += len(list.elements())
	require(list.Node == nil || len(path) <= maxDepth && t.descriptors <= maxDescriptors,
		list, "", "there are too many descriptors, or they are nested too deeply")
	values, seen := map[string][]string{}, map[string]bool{}
	for _, d := range list.elements() {
		if key, value := d.text("key"), d.text("value"); value != "" {
			values[key] = append(values[key], value)
		}
	}
	for _, d := range list.elements() {
		require(d.is(yaml.MappingNode), d, "write key: and a name", "a descriptor is not a mapping")
		d.checkKeys("a descriptor", descriptorKeys, rateLimitKeys)
		e := entry{descriptor: d, key: d.text("key"), value: d.text("value"), shared: d.text("share_threshold") == "true"}
		require(e.key != "", d, "write key: and a name", "a descriptor has no key")
		composite := strings.TrimSuffix(e.key+"_"+e.value, "_") // as ratelimit compares them
		require(!seen[composite], d, "remove one", "the descriptor %v is a duplicate: ratelimit does not load it", e)
		seen[composite] = true
		if e.value == "" {
			e.siblings = values[e.key]
		}
		deeper := append(slices.Clip(path), e)
		if limit := d.child("rate_limit"); limit.is(yaml.MappingNode) {
			t.readLimit(limit, deeper)
		}
		t.readDescriptors(d.child("descriptors"), deeper)
	}
}

// readLimit reads the rate_limit n of the descriptor at the end of path.
func (t *ratelimit) readLimit(n value, path []entry) {
	ignored := n.checkKeys("rate_limit", rateLimitKeys, descriptorKeys)
	words, ids := []string{}, []string{t.domain}
	for _, e := range path {
		words, ids = append(words, e.String()), append(ids, e.key, e.value)
	}
	last, client := path[len(path)-1].descriptor, soleClient(path)
	name := fmt.Sprintf("%s of domain %s", strings.Join(words, ", "), t.domain)
	place := last.at().String()
	title := fmt.Sprintf("%s (%s)", name, place)
	for _, other := range n.child("replaces").elements() {
		t.replacing[other.text("name")] = append(t.replacing[other.text("name")], title)
	}
	if n.text("unlimited") == "true" {
		require(n.text("unit") == "", n.child("unit"),
			"remove unit, or unlimited", "a limit is unlimited and has a unit")
		if client.IsValid() {
			list(&t.allow, client, title+" is unlimited; allow exempts it from all rules and from deny")
		} else {
			t.uncovered(last, "%s is unlimited: except such requests from the rules that count them", title)
		}
		return
	}
	unit := strings.ToLower(n.text("unit"))
	period, ok := units[unit]
	require(ok, cmp.Or(n.child("unit"), n),
		"write second, minute, hour, day, week, month or year", "invalid unit %q", unit)
	number := func(name string, low, high uint64) uint64 {
		return wholeNumber(cmp.Or(n.child(name), n), name, n.text(name), low, high)
	}
	times := uint64(1)
	if n.child("unit_multiplier").Node != nil {
		times = number("unit_multiplier", 1, math.MaxInt32)
	}
	threshold := number("requests_per_unit", 0, math.MaxUint32)
	if period > rule.MaxPeriod || times > uint64(rule.MaxPeriod/period) {
		t.uncovered(n, "%d requests in %d %s for %s: rules have periods of at most %s", threshold, times, unit, title,
			rule.FormatDuration(rule.MaxPeriod))
		return
	}
	if threshold == 0 {
		if client.IsValid() && last.text("shadow_mode") != "true" {
			list(&t.deny, client, title+" may send no requests: edge refuses them with 403")
		} else {
			t.uncovered(last, "%s may send no requests: a rule's threshold is at least 1", title)
		}
		return
	}
	r := &draft{id: cmp.Or(n.text("name"), strings.Join(ids, "-")), from: name, places: []string{place},
		limits: []rule.Limit{{Threshold: threshold, Period: period * time.Duration(times)}}}
	for _, name := range ignored {
		r.notes.Add("%s has no effect within rate_limit: ratelimit reads it next to rate_limit", name)
	}
	r.entries(path)
	r.options(n, last)
	if len(r.characteristics) == 0 {
		r.characteristics = []rule.Characteristic{{Kind: rule.Host}}
		r.notes.Add("ratelimit counts all requests here together; rules cannot, so edge counts the requests of all clients " +
			"per host")
	}
	r.logs.AddIf(len(r.match[byHost])+len(r.match[byPath])+len(r.logs) == 0,
		"Envoy's routes decide which requests are counted: write them as the rule's match, unless all are")
	t.rules = append(t.rules, r)
}

// countBy adds a characteristic, unless r has it.
func (r *draft) countBy(c rule.Characteristic) {
	if !r.countsBy(c) {
		r.characteristics = append(r.characteristics, c)
	}
}

// countsBy reports whether r has a characteristic.
func (r *draft) countsBy(c rule.Characteristic) bool {
	return slices.ContainsFunc(r.characteristics, c.Same)
}

// entries makes r match and count by the entries of a descriptor.
func (r *draft) entries(path []entry) {
	for _, e := range path {
		r.logs.AddIf(len(e.siblings) > 0,
			"ratelimit has other limits for %s %s, which this rule also counts",
			e.key, strings.Join(e.siblings[:min(4, len(e.siblings))], ", "))
		at := slices.IndexFunc(requestKinds[:], func(k rule.Kind) bool {
			return slices.Contains(k.Given(), e.key) || e.key == strings.ToUpper(k.String())
		})
		switch {
		case at >= 0:
			r.request(e, at)
		case slices.Contains(ipEntries, e.key):
			r.countBy(rule.Characteristic{Kind: rule.IP})
			r.notes.AddIf(e.key == "masked_remote_address",
				"masked_remote_address is a network: edge counts by the nodes' ipv4_prefix and ipv6_prefix, the same for all rules")
			r.logs.AddIf(e.value != "", "the limit is for the client %s alone, which rules cannot match", e.value)
		case slices.Contains(routeEntries, e.key) && e.value == "":
			r.logs.Add("Envoy counts each value of %s, which its routes set, separately; this rule counts all of them "+
				"together: write a rule with a match for each", e.key)
		case slices.Contains(routeEntries, e.key):
			r.logs.Add("Envoy's routes decide which requests are %s: write these as the rule's match", e)
		case e.value == "":
			r.header(e)
		default:
			r.logs.Add("rules cannot match %s, unless a route sets it: then write the route as the rule's match", e)
			if e.wild() {
				r.header(e)
			}
		}
		r.notes.AddIf(e.shared && strings.Contains(e.value, "*"),
			"share_threshold: all values of %s share one count", e)
	}
}

// request matches and counts by an entry that is a property of requests.
func (r *draft) request(e entry, index int) {
	if e.value == "" || e.wild() {
		r.countBy(rule.Characteristic{Kind: requestKinds[index]})
	}
	exact := index != byHost || e.value == strings.ToLower(e.value)
	if r.match[index] == nil && e.value != "" && exact && expressible(index, e.value) {
		r.match[index] = []string{e.value}
	} else {
		r.logs.AddIf(e.value != "", "rules cannot match %s", e)
	}
	r.notes.AddIf(index == byHost && e.value != "", "edge ignores a host's port and letter case; ratelimit does not")
	if index == byPath {
		r.reading = "literal"
		r.logs.Add("in Envoy, :path contains the query; edge compares and counts the path alone")
	}
}

// header counts by the header from which Envoy probably takes the value of an entry.
func (r *draft) header(e entry) {
	name := "header:" + strings.ToLower(strings.Trim(strings.ReplaceAll(e.key, "_", "-"), ":"))
	c, err := rulefile.ParseCharacteristic(name)
	if err != nil {
		r.logs.Add("rules cannot count by %q", e.key)
		return
	}
	c.Skip = true
	r.countBy(c)
	r.notes.Add("%s is treated as the request header %s: compare it with the rate_limits of Envoy's routes. Requests "+
		"without it are not counted", e.key, c.Name)
}

// options records the effect of the other keys of a descriptor.
func (r *draft) options(limit, descriptor value) {
	is := func(name string) bool { return descriptor.text(name) == "true" }
	r.logs.AddIf(is("shadow_mode"), "shadow_mode is on")
	r.logs.AddIf(is("quota_mode"), "quota_mode is on: ratelimit reports an exceeded limit and does not refuse")
	for _, name := range []string{"detailed_metric", "value_to_metric", "metadata"} {
		r.notes.AddIf(is(name) || name == "metadata" && descriptor.child(name).Node != nil,
			"%s is not covered: edge's metrics and responses name the rule, never values of requests", name)
	}
	a := limit.text("algorithm")
	r.notes.AddIf(a != "", "algorithm %s is not covered: edge estimates over two windows", a)
}

// soleClient returns the client that path describes, if it describes nothing else.
func soleClient(path []entry) (p netip.Prefix) {
	if len(path) == 1 && slices.Contains(ipEntries, path[0].key) {
		p, _ = parseNetwork(path[0].value)
	}
	return p
}
