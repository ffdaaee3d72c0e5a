package translate

// The keys of nginx's zones: variables, maps and geo blocks.

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// A key says what a zone counts apart, and which requests it concerns.
type key struct {
	characteristics []characteristic
	hosts           []string // empty: all
	methods, paths  []string
	exempt          []listed // clients that are not counted
	notes, logs     []string
	unknown         string // why no rule can say it; empty if one can
	never           bool   // nothing is ever counted
}

// scope is what names mean at a place of a configuration.
type scope struct {
	maps map[string]*directive // by variable, without $
	geos map[string]*directive
	keys map[string]*key // of variables that maps make; nil while one is being made
}

var variables = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// clientHeaders are headers that proxies write the client's address into.
var clientHeaders = []string{"x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip", "x-client-ip", "fastly-client-ip", "x-original-forwarded-for"}

// constantVariables are the same for all requests to one server.
var constantVariables = []string{"server_port", "server_addr", "server_protocol", "scheme", "https", "hostname", "pid", "nginx_version", "document_root", "realpath_root", "proxy_host", "proxy_port", "ingress_name", "namespace", "service_name", "service_port", "proxy_upstream_name", "location_path"}

// keyOf returns the key that an expression of variables and text makes.
func (s *scope) keyOf(expr string, depth int) (k key) {
	named := variables.FindAllStringSubmatch(expr, -1)
	if len(named) == 0 {
		if k.never = expr == ""; !k.never {
			k.constant("the key is the same for all requests")
		}
		return k
	}
	for _, m := range named {
		one := s.variable(m[1]+m[2], depth)
		if one.unknown != "" {
			return key{unknown: one.unknown}
		}
		if len(named) > 1 && (one.never || len(one.hosts)+len(one.methods)+len(one.paths)+len(one.exempt) > 0) {
			return key{unknown: fmt.Sprintf("the key combines $%s%s, which a map or geo makes, with others", m[1], m[2])}
		}
		characteristics := k.characteristics
		for _, c := range one.characteristics {
			if len(named) > 1 {
				c.skip = false // the combination is empty only if all are
			}
			if !slices.ContainsFunc(characteristics, func(o characteristic) bool { return o.text == c.text }) {
				characteristics = append(characteristics, c)
			}
		}
		notes, logs := append(k.notes, one.notes...), append(k.logs, one.logs...)
		k = one
		k.characteristics, k.notes, k.logs = characteristics, notes, logs
	}
	if len(k.characteristics) == 0 && !k.never {
		k.constant("the key is the same for all requests")
	}
	if len(k.characteristics) == 1 && k.characteristics[0].skip && depth == 0 {
		kind, _, _ := strings.Cut(k.characteristics[0].text, ":")
		k.notes = append(k.notes, fmt.Sprintf("requests without this %s are not counted, as with nginx; edge counts those with an empty one, nginx does not", kind))
	}
	return k
}

// constant makes k the nearest thing to a key that all requests share.
func (k *key) constant(why string) {
	k.characteristics = []characteristic{{text: "host"}}
	k.notes = append(k.notes, why+"; rules have no such key, so edge counts each host apart, for all clients together")
}

// variable returns the key that a variable makes.
func (s *scope) variable(name string, depth int) (k key) {
	if d := s.maps[name]; d != nil {
		made, seen := s.keys[name]
		switch {
		case seen && made == nil:
			k.unknown = fmt.Sprintf("map $%s refers to itself", name)
			return k
		case !seen:
			s.keys[name] = nil
			k = s.mapped(d, depth)
			s.keys[name] = &k
			return k
		}
		return *made
	}
	if d := s.geos[name]; d != nil {
		k.unknown = fmt.Sprintf("it counts by the classes of clients that geo $%s makes", name)
		return k
	}
	is := func(text string) { k.characteristics = []characteristic{{text: text}} }
	named := func(kind, name string) {
		k.characteristics = []characteristic{{kind + ":" + name, true}}
	}
	switch prefix, rest, _ := strings.Cut(name, "_"); {
	case name == "binary_remote_addr" || name == "remote_addr" || name == "limit_key_ip":
		is("ip")
	case name == "realip_remote_addr":
		is("ip")
		k.notes = append(k.notes, "$realip_remote_addr is the address of the connection; edge takes the client behind trusted_proxy")
	case name == "proxy_add_x_forwarded_for":
		k.characteristics = []characteristic{{text: "header:x-forwarded-for"}, {text: "ip"}}
		k.clientHeader("X-Forwarded-For")
	case name == "host" || name == "http_host" || name == "server_name" || name == "best_http_host":
		is("host")
		if name == "server_name" {
			k.notes = append(k.notes, "$server_name is the first name of the server; edge counts each host apart")
		}
	case name == "uri" || name == "document_uri":
		is("path")
	case name == "request_uri" || name == "request":
		is("path")
		k.notes = append(k.notes, fmt.Sprintf("$%s contains the query; edge counts by path alone, so requests that differ only in the query share a count", name))
		k.logs = append(k.logs, "it counts requests together that nginx counts apart")
	case name == "request_method":
		is("method")
	case slices.Contains(constantVariables, name):
	case prefix == "http" && rest != "":
		header := strings.ReplaceAll(strings.ToLower(rest), "_", "-")
		named("header", header)
		if slices.Contains(clientHeaders, header) {
			k.clientHeader(header)
		}
	case prefix == "cookie" && rest != "":
		named("cookie", rest)
		k.notes = append(k.notes, "names of cookies are case-sensitive to edge")
	case prefix == "arg" && rest != "":
		named("query", rest)
		k.notes = append(k.notes, "names of query parameters are case-sensitive to edge")
	default:
		k.unknown = fmt.Sprintf("rules cannot count by $%s", name)
	}
	if len(k.characteristics) > 0 && !expressibleCharacteristic(k.characteristics[0].text) {
		return key{unknown: fmt.Sprintf("rules cannot count by $%s", name)}
	}
	return k
}

func (k *key) clientHeader(header string) {
	k.notes = append(k.notes, fmt.Sprintf("%s holds a client's address as another proxy, or the client, writes it: "+
		"rather set trusted_proxy on the nodes and count by ip", header))
}

// A mapEntry is a line of a map.
type mapEntry struct {
	pattern, value string
}

// mapEntries returns the lines of a map or geo block, and the default value.
func mapEntries(d *directive) (entries []mapEntry, otherwise string, options []*directive) {
	for _, e := range d.block {
		switch name := e.name(); {
		case len(e.words) == 1 || e.body:
			options = append(options, e)
		case name == "default":
			otherwise = e.words[1].text
		case d.name() == "geo" && (name == "proxy" || name == "delete"):
			options = append(options, e)
		default:
			entries = append(entries, mapEntry{name, e.words[1].text})
		}
	}
	return entries, otherwise, options
}

// mapped returns the key that a map makes: one key for some of the requests, nothing for the others.
func (s *scope) mapped(d *directive, depth int) (k key) {
	source, name := d.words[1].text, d.words[2].text
	entries, otherwise, _ := mapEntries(d)
	where := fmt.Sprintf("map %s (%v)", name, d.position)
	var counted, empty []mapEntry
	var made []key
	for _, e := range append(slices.Clip(entries), mapEntry{"default", otherwise}) {
		if e.value == "" {
			empty = append(empty, e)
		} else {
			counted, made = append(counted, e), append(made, s.keyOf(e.value, depth+1))
		}
	}
	if len(counted) == 0 {
		return key{never: true}
	}
	if i := slices.IndexFunc(made, func(one key) bool { return one.unknown != "" }); i >= 0 {
		return made[i]
	}
	k = made[len(made)-1]
	same := func(a, b key) bool { return fmt.Sprint(a.characteristics) == fmt.Sprint(b.characteristics) }
	if slices.ContainsFunc(made, func(o key) bool { return !same(o, k) }) {
		if slices.Contains(clientHeaders, headerOf(source)) {
			k = key{characteristics: []characteristic{{text: "ip"}}}
			k.logs = append(k.logs, fmt.Sprintf("%s takes the client's address from %s: set trusted_proxy on the nodes first, or all clients behind a proxy share one count", where, source))
			return k
		}
		return key{unknown: where + " makes keys of several kinds"}
	}
	if len(empty) == 0 {
		return k
	}
	client := source == "$remote_addr" || source == "$binary_remote_addr"
	geo := s.geos[strings.Trim(source, "${}")]
	switch {
	case geo != nil:
		k.byNetwork(where, geo, entries, otherwise)
	case otherwise != "" && client:
		for _, e := range empty {
			prefix, ok := parseNetwork(e.pattern)
			if !ok {
				k.logs = append(k.logs, fmt.Sprintf("%s exempts clients by %q, which rules cannot: list their networks under allow", where, e.pattern))
				continue
			}
			k.exempt = append(k.exempt, listed{prefix, where})
		}
	case otherwise != "":
		k.logs = append(k.logs, fmt.Sprintf("%s exempts requests by %s (%s), which rules cannot", where, source, quoteSome(empty)))
	default:
		k.only(where, source, counted)
	}
	return k
}

// headerOf returns the header that a variable stands for, or nothing.
func headerOf(variable string) string {
	rest, ok := strings.CutPrefix(strings.Trim(variable, "${}"), "http_")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(rest), "_", "-")
}

// only restricts k to the requests for which a map makes a key.
func (k *key) only(where, source string, counted []mapEntry) {
	var what string
	var into *[]string
	switch source {
	case "$request_method":
		what, into = "methods", &k.methods
	case "$uri", "$request_uri", "$document_uri":
		what, into = "paths", &k.paths
	case "$host", "$http_host":
		what, into = "hosts", &k.hosts
	default:
		k.unknown = fmt.Sprintf("%s counts only some requests, by %s (%s), which rules cannot match", where, source, quoteSome(counted))
		return
	}
	for _, e := range counted {
		patterns, broader, ok := []string{e.pattern}, false, true
		if expr, regex := strings.CutPrefix(e.pattern, "~"); regex {
			patterns, broader, ok = patternsOf(strings.TrimPrefix(expr, "*"))
		} else {
			patterns[0] = strings.TrimPrefix(patterns[0], `\`)
		}
		if !ok || !expressible(what, patterns...) {
			k.unknown = fmt.Sprintf("%s counts only requests whose %s is like %q, which rules cannot match", where, source, e.pattern)
			return
		}
		if broader {
			k.logs = append(k.logs, fmt.Sprintf("%s: %q matches fewer %s than the rule", where, e.pattern, what))
		}
		*into = append(*into, without(patterns, *into)...)
	}
	if source == "$request_uri" {
		k.notes = append(k.notes, where+" compares $request_uri, with its query; edge compares the path alone")
	}
}

// byNetwork exempts the clients of the networks for which a map of a geo block makes no key.
func (k *key) byNetwork(where string, geo *directive, entries []mapEntry, otherwise string) {
	networks, normal, options := mapEntries(geo)
	counts := func(value string) bool {
		for _, e := range entries {
			if strings.EqualFold(e.pattern, value) {
				return e.value != ""
			}
		}
		return otherwise != ""
	}
	where = fmt.Sprintf("%s, geo %s (%v)", where, geo.words[len(geo.words)-1].text, geo.position)
	if !counts(normal) {
		k.unknown = where + ": counts only clients of certain networks, which rules cannot match"
		return
	}
	for _, o := range options {
		if o.name() != "volatile" {
			k.notes = append(k.notes, fmt.Sprintf("%s: %s is not covered", where, o.source()))
		}
	}
	if len(geo.words) == 3 && geo.words[1].text != "$remote_addr" {
		k.logs = append(k.logs, fmt.Sprintf("%s looks at %s; the rules' allow list looks at the client's address", where, geo.words[1].text))
	}
	var kept []netip.Prefix
	for _, n := range networks {
		prefix, ok := parseNetwork(n.pattern)
		switch {
		case !ok:
			k.logs = append(k.logs, fmt.Sprintf("%s: %q is not a network", where, n.pattern))
		case counts(n.value):
			kept = append(kept, prefix)
		default:
			k.exempt = append(k.exempt, listed{prefix, where})
		}
	}
	for _, p := range kept {
		for _, e := range k.exempt {
			if e.prefix.Overlaps(p) && e.prefix.Bits() < p.Bits() {
				k.notes = append(k.notes, fmt.Sprintf("%s counts %v inside of %v; edge exempts it", where, p, e.prefix))
			}
		}
	}
}

// quoteSome quotes the patterns of a few entries.
func quoteSome(entries []mapEntry) string {
	const most = 4
	var list []string
	for i, e := range entries {
		if i == most {
			list = append(list, fmt.Sprintf("%d more", len(entries)-most))
			break
		}
		list = append(list, fmt.Sprintf("%q", e.pattern))
	}
	return strings.Join(list, ", ")
}
