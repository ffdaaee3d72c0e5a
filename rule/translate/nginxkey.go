package translate

// The keys of nginx's zones: variables, maps and geo blocks.

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A key says what a zone counts by, and which requests it counts.
type key struct {
	draft            // the match, characteristics, notes and logs of a rule with the key
	exempt  []listed // clients that are not counted
	unknown string   // why no rule can express it; empty if one can
	never   bool     // nothing is ever counted
}

var variables = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// clientHeaders are headers in which proxies write the client's address.
var clientHeaders = []string{"x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip", "x-client-ip",
	"fastly-client-ip", "x-original-forwarded-for"}

// constantVariables have the same value for all requests to a server.
var constantVariables = []string{"server_port", "server_addr", "server_protocol", "scheme", "https", "hostname", "pid",
	"nginx_version", "document_root", "realpath_root", "proxy_host", "proxy_port", "ingress_name", "namespace",
	"service_name", "service_port", "proxy_upstream_name", "location_path"}

// keyOf returns the key of an expression of variables and text.
func (n *nginx) keyOf(expr string, depth int) (k key) {
	named := variables.FindAllStringSubmatch(expr, -1)
	k.never = expr == ""
	var all draft
	for _, m := range named {
		part := n.variable(m[1]+m[2], depth)
		if part.unknown != "" {
			return key{unknown: part.unknown}
		}
		if len(named) > 1 && (part.never || len(part.exempt)+len(part.headerName) > 0 || !part.match.isEmpty()) {
			const combined = "the key combines $%s, which a map or geo defines, with other variables"
			return key{unknown: fmt.Sprintf(combined, m[1]+m[2])}
		}
		for _, c := range part.characteristics {
			c.skip = c.skip && len(named) == 1 // a combination is empty only if all its parts are
			all.countBy(c)
		}
		all.notes, all.logs = append(all.notes, part.notes...), append(all.logs, part.logs...)
		k = part
	}
	k.characteristics, k.notes, k.logs = all.characteristics, all.notes, all.logs
	if len(k.characteristics) == 0 && !k.never {
		k.characteristics = []characteristic{{text: "host"}}
		k.notes.Add("the key is the same for all requests; rules have no such key, so edge counts the requests of all " +
			"clients per host")
	}
	if len(k.characteristics) == 1 && k.characteristics[0].skip && depth == 0 {
		kind, _, _ := strings.Cut(k.characteristics[0].text, ":")
		k.notes.Add("requests without this %s are not counted, as in nginx; unlike nginx, edge counts those with an "+
			"empty one", kind)
	}
	return k
}

// plainVariables are variables that are, or come close to, a characteristic without a name.
var plainVariables = map[string]string{
	"remote_addr": "ip", "binary_remote_addr": "ip", "limit_key_ip": "ip", "realip_remote_addr": "ip",
	"host": "host", "http_host": "host", "best_http_host": "host", "server_name": "host",
	"uri": "path", "document_uri": "path", "request_uri": "path", "request": "path", "request_method": "method",
}

const withQuery = "contains the query; edge counts by path alone, so requests differing only in the query share a count"

// variableNotes say how a variable differs from its characteristic.
var variableNotes = map[string]string{
	"realip_remote_addr": "is the address of the connection; edge uses the client's address behind trusted_proxy",
	"server_name":        "is the first name of the server; edge counts each host separately",
	"request_uri":        withQuery,
	"request":            withQuery,
}

// namedVariables are the kinds of characteristics in variables, by the prefix of the variable.
var namedVariables = map[string]string{"http": "header", "cookie": "cookie", "arg": "query"}

// variable returns the key of a variable.
func (n *nginx) variable(name string, depth int) (k key) {
	if d := n.maps[name]; d != nil {
		made, seen := n.keys[name]
		if !seen {
			n.keys[name] = key{unknown: fmt.Sprintf("map $%s refers to itself", name)} // while it is being made
			made = n.mapped(d, depth)
			n.keys[name] = made
		}
		return made
	}
	if n.geos[name] != nil {
		return key{unknown: fmt.Sprintf("it counts by the values of geo $%s", name)}
	}
	prefix, rest, _ := strings.Cut(name, "_")
	kind, header := namedVariables[prefix], headerOf(name)
	switch {
	case plainVariables[name] != "":
		k.characteristics = []characteristic{{text: plainVariables[name]}}
		k.notes.AddIf(variableNotes[name] != "", "$%s %s", name, variableNotes[name])
		k.logs.AddIf(name == "request_uri" || name == "request",
			"it counts together requests that nginx counts separately")
	case name == "proxy_add_x_forwarded_for":
		header = "X-Forwarded-For"
		k.characteristics = []characteristic{{text: "header:x-forwarded-for"}, {text: "ip"}}
	case slices.Contains(constantVariables, name):
	case kind == "header":
		k.characteristics = []characteristic{{"header:" + header, true}}
	default:
		k.characteristics = []characteristic{{kind + ":" + rest, true}}
		k.notes.Add("the names of %s are case-sensitive in edge",
			map[string]string{"cookie": "cookies", "query": "query parameters"}[kind])
	}
	for _, c := range k.characteristics {
		if _, err := rulefile.ParseCharacteristic(c.text); err != nil {
			return key{unknown: fmt.Sprintf("rules cannot count by $%s", name)}
		}
	}
	k.notes.AddIf(slices.Contains(clientHeaders, strings.ToLower(header)), "%s contains a client's address, written by "+
		"another proxy or by the client: set trusted_proxy on the nodes and count by ip instead", header)
	return k
}

// A mapEntry is a line of a map or geo block.
type mapEntry struct {
	pattern, value string
}

func (e mapEntry) isRegex() bool { return strings.HasPrefix(e.pattern, "~") }

// isExact reports whether the letter case of what e matches counts.
func (e mapEntry) isExact() bool {
	return e.isRegex() && !strings.HasPrefix(e.pattern, "~*") && strings.ToUpper(e.pattern) != strings.ToLower(e.pattern)
}

// expression returns the regular expression that e matches, without regard to letter case unless e is exact.
func (e mapEntry) expression() string {
	if expr, ok := strings.CutPrefix(e.pattern, "~"); ok {
		return strings.TrimPrefix(expr, "*")
	}
	return "^" + regexp.QuoteMeta(strings.TrimPrefix(e.pattern, `\`)) + "$"
}

// mapEntries returns the lines of a map or geo block, and the default value.
func mapEntries(d *directive) (entries []mapEntry, otherwise string, options []*directive) {
	for _, e := range d.block {
		switch name := e.name; {
		case len(e.args) == 0 || e.body || d.name == "geo" && (name == "proxy" || name == "delete"):
			options = append(options, e)
		case name == "default":
			otherwise = e.args[0]
		default:
			entries = append(entries, mapEntry{name, e.args[0]})
		}
	}
	return entries, otherwise, options
}

// mapped returns the key of a map that has the same key for some requests, and none for the others.
func (n *nginx) mapped(d *directive, depth int) (k key) {
	source, name := d.args[0], d.args[1]
	entries, otherwise, _ := mapEntries(d)
	where := fmt.Sprintf("map %s (%v)", name, d.position)
	var counted, empty []mapEntry
	kinds := map[string]bool{} // of keys
	for _, e := range append(slices.Clip(entries), mapEntry{"default", otherwise}) {
		if e.value == "" {
			empty = append(empty, e)
			continue
		}
		if k = n.keyOf(e.value, depth+1); k.unknown != "" {
			return k
		}
		counted, kinds[fmt.Sprint(k.characteristics, k.match, k.except, k.exempt, k.headerName)] = append(counted, e), true
	}
	if len(counted) == 0 {
		return key{never: true}
	}
	if len(kinds) > 1 {
		if slices.Contains(clientHeaders, headerOf(source)) {
			k = key{draft: draft{characteristics: []characteristic{{text: "ip"}}}}
			k.logs.Add("%s takes the client's address from %s: first set trusted_proxy on the nodes, or all clients behind a "+
				"proxy share one count", where, source)
			return k
		}
		return key{unknown: where + " has keys of several kinds"}
	}
	if len(empty) == 0 {
		return k
	}
	geo := n.geos[strings.Trim(source, "${}")]
	switch {
	case geo != nil && !slices.ContainsFunc(entries, mapEntry.isRegex):
		k.byNetwork(where, geo, entries, otherwise)
	case otherwise != "" && source == "$remote_addr":
		for _, e := range empty {
			if addr, err := netip.ParseAddr(e.pattern); err == nil {
				k.exempt = append(k.exempt, listed{netip.PrefixFrom(addr, addr.BitLen()), where})
			} else { // a map does not look up networks
				k.logs.Add("%s exempts clients by %q, which rules cannot do: list their networks under allow", where, e.pattern)
			}
		}
	case otherwise == "" && len(empty) == 1 && k.byHeader(where, source, counted, &k.match):
	case otherwise != "" && len(counted) == 1 && k.byHeader(where, source, empty, &k.except):
	case otherwise != "" || len(empty) > 1:
		k.logs.Add("%s exempts requests by %s (%s), which rules cannot do", where, source, quoteSome(empty))
	default:
		k.only(where, source, counted)
	}
	return k
}

// headerOf returns the header in a variable, or "".
func headerOf(variable string) string {
	rest, ok := strings.CutPrefix(strings.Trim(variable, "${}"), "http_")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(rest), "_", "-")
}

// matchVariables are the variables that rules can match.
var matchVariables = map[string]int{
	"$request_method": byMethod, "$uri": byPath, "$request_uri": byPath, "$document_uri": byPath, "$host": byHost,
	"$http_host": byHost,
}

// only restricts k to the requests for which a map has a key.
func (k *key) only(where, source string, counted []mapEntry) {
	index, ok := matchVariables[source]
	if !ok || len(k.match[index]) > 0 {
		k.unknown = fmt.Sprintf("%s counts only some requests, by %s (%s), which rules cannot match", where, source,
			quoteSome(counted))
		return
	}
	k.anyCase = index == byPath && !slices.ContainsFunc(counted, mapEntry.isExact)
	for _, e := range counted {
		patterns, broader, ok := patternsOf(e.expression())
		if !ok || !expressible(index, patterns...) {
			k.unknown = fmt.Sprintf("%s counts only requests whose %s matches %q, which rules cannot match", where, source,
				e.pattern)
			return
		}
		k.logs.AddIf(broader, "%s: %q matches fewer %s than the rule", where, e.pattern, matchKeys[index])
		k.notes.AddIf(index == byPath && !k.anyCase && !e.isExact(),
			"%s: %q matches paths in any letter case, the rule only in this one", where, e.pattern)
		k.match[index] = unique(append(k.match[index], patterns...))
	}
	k.logs.AddIf(source == "$request_uri",
		"%s compares $request_uri, which includes the query; edge compares the path alone", where)
}

// byHeader adds the patterns of a map of a header to those of k's match or exception. It returns false if rules cannot
// have them. A request without the header has an empty value in nginx.
func (k *key) byHeader(where, source string, entries []mapEntry, to *match) bool {
	header := headerOf(source)
	if header == "" || header == "host" || k.headerName != "" {
		return false
	}
	var patterns []string
	var logs prose.Phrases
	for _, e := range entries {
		expr := e.expression()
		p, err := rule.NewPattern(rule.Header, "~"+expr)
		if empty, _ := regexp.MatchString(expr, ""); err != nil || empty {
			return false
		}
		patterns = append(patterns, p.String())
		logs.AddIf(e.isExact(), "%s: %q matches fewer headers than the rule, which ignores letter case", where, e.pattern)
	}
	k.headerName, to[byHeader], k.logs = header, unique(patterns), append(k.logs, logs...)
	return true
}

// byNetwork exempts clients in networks of a geo block for which a map has no key.
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
	where = fmt.Sprintf("%s, geo %s (%v)", where, geo.args[len(geo.args)-1], geo.position)
	if !counts(normal) {
		k.unknown = where + ": counts only clients of certain networks, which rules cannot match"
		return
	}
	for _, o := range options {
		k.notes.AddIf(o.name != "volatile", "%s: %s is not covered", where, o.source())
	}
	k.logs.AddIf(len(geo.args) == 2 && geo.args[0] != "$remote_addr",
		"%s looks up %s; the allow list contains clients' addresses", where, geo.args[0])
	var kept []netip.Prefix
	for _, n := range networks {
		prefix, ok := parseNetwork(n.pattern)
		switch {
		case !ok:
			k.logs.Add("%s: %q is not a network", where, n.pattern)
		case counts(n.value):
			kept = append(kept, prefix)
		default:
			k.exempt = append(k.exempt, listed{prefix, where})
		}
	}
	for _, p := range kept {
		for _, e := range k.exempt {
			k.notes.AddIf(e.prefix.Overlaps(p) && e.prefix.Bits() < p.Bits(),
				"%s counts %v within %v; edge exempts it", where, p, e.prefix)
		}
	}
}

// quoteSome quotes the patterns of the first entries.
func quoteSome(entries []mapEntry) string {
	const most = 4
	list := prose.Texts(entries[:min(most, len(entries))], func(e mapEntry) string { return strconv.Quote(e.pattern) })
	if more := len(entries) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}
