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
	draft            // the match, exceptions, characteristics, notes and logs of a rule with the key
	exempt  []listed // clients that are not counted
	unknown string   // why no rule can express it; empty if one can
}

// alwaysEmpty is the reason why no rule can express a key that never has a value.
const alwaysEmpty = "the key is always empty, so nginx counts nothing"

// isPartial reports whether k counts only some of the requests that have its characteristics.
func (k *key) isPartial() bool {
	return k.unknown == alwaysEmpty || len(k.exempt) > 0 || !k.match.isEmpty() || !k.except.isEmpty()
}

var variableNames = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// clientHeaders are headers in which proxies write the client's address.
var clientHeaders = []string{"x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip", "x-client-ip",
	"fastly-client-ip", "x-original-forwarded-for"}

// keyOf returns the key of an expression of variables and text.
func (n *nginx) keyOf(expr string) (k key) {
	if expr == "" {
		return key{unknown: alwaysEmpty}
	}
	named := variableNames.FindAllStringSubmatch(expr, -1)
	var all draft
	filled := variableNames.ReplaceAllString(expr, "") != "" // never empty
	for _, m := range named {
		name := m[1] + m[2]
		k = n.variable(name)
		if len(named) > 1 && k.isPartial() {
			k.unknown = fmt.Sprintf("the key combines $%s, which a map or geo defines, with other variables", name)
		}
		if k.unknown != "" {
			return k
		}
		filled = filled || !slices.ContainsFunc(k.characteristics, func(c rule.Characteristic) bool { return c.Skip })
		for _, c := range k.characteristics {
			c.Skip = c.Skip && len(named) == 1 && !filled // a combination is empty only if all its parts are
			all.countBy(c)
		}
		all.notes, all.logs = append(all.notes, k.notes...), append(all.logs, k.logs...)
	}
	all.logs.AddIf(len(named) > 1 && !filled,
		"nginx does not count requests for which all variables of the key are empty; the rule counts them together")
	k.characteristics, k.notes, k.logs = all.characteristics, all.notes, all.logs
	if len(k.characteristics) == 0 {
		k.characteristics = []rule.Characteristic{{Kind: rule.Host}}
		k.notes.Add("the key is the same for all requests; rules have no such key, so edge counts the requests of all " +
			"clients per host")
	}
	return k
}

// plainVariables maps variables to the characteristics that equal or resemble them. Variables without any have the
// same value for all requests to a server.
var plainVariables = map[string]string{
	"remote_addr": "ip", "binary_remote_addr": "ip", "limit_key_ip": "ip", "realip_remote_addr": "ip",
	"host": "host", "http_host": "host", "best_http_host": "host", "server_name": "host",
	"uri": "path", "document_uri": "path", "request_uri": "path", "request": "path", "request_method": "method",
	"proxy_add_x_forwarded_for": "header:x-forwarded-for ip",
	"server_port":               "", "server_addr": "", "server_protocol": "", "scheme": "", "https": "", "hostname": "",
	"pid": "", "nginx_version": "", "document_root": "", "realpath_root": "", "proxy_host": "", "proxy_port": "",
	"ingress_name": "", "namespace": "", "service_name": "", "service_port": "", "proxy_upstream_name": "",
	"location_path": "",
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
func (n *nginx) variable(name string) (k key) {
	if made, ok := n.keys[name]; ok {
		return made
	}
	if d := n.variables[name]; d != nil && d.name == "map" {
		n.keys[name] = key{unknown: fmt.Sprintf("map $%s refers to itself", name)} // while it is being made
		n.keys[name] = n.mapped(d)
		return n.keys[name]
	} else if d != nil {
		return key{unknown: fmt.Sprintf("it counts by the values of geo $%s", name)}
	}
	prefix, rest, _ := strings.Cut(name, "_")
	kind := namedVariables[prefix]
	texts, plain := plainVariables[name]
	switch {
	case plain:
		k.notes.AddIf(variableNotes[name] != "", "$%s %s", name, variableNotes[name])
		k.logs.AddIf(name == "request_uri" || name == "request",
			"it counts together requests that nginx counts separately")
	case kind == "header":
		texts = "header:" + headerOf(name)
	default:
		texts = kind + ":" + rest
		k.notes.Add("the names of %s are case-sensitive in edge",
			map[string]string{"cookie": "cookies", "query": "query parameters"}[kind])
	}
	for text := range strings.FieldsSeq(texts) {
		c, err := rulefile.ParseCharacteristic(text)
		if err != nil {
			return key{unknown: fmt.Sprintf("rules cannot count by $%s", name)}
		}
		c.Skip = !plain
		k.characteristics = append(k.characteristics, c)
		k.notes.AddIf(slices.Contains(clientHeaders, c.Name), "%s contains a client's address, written by another proxy or "+
			"by the client: set trusted_proxy on the nodes and count by ip instead", c.Name)
	}
	return k
}

// A mapEntry is a line of a map or geo block.
type mapEntry struct {
	pattern, value string
}

func (e mapEntry) isRegex() bool { return strings.HasPrefix(e.pattern, "~") }

// isExact reports whether e distinguishes letter case.
func (e mapEntry) isExact() bool {
	return e.isRegex() && !strings.HasPrefix(e.pattern, "~*") && strings.ToUpper(e.pattern) != strings.ToLower(e.pattern)
}

// expression returns a regular expression for what e matches. Unless e is exact, letter case is to be ignored.
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

// mapped returns the key of a map that gives some requests the same kind of key, and the others none.
func (n *nginx) mapped(d *directive) (k key) {
	source := d.args[0]
	entries, otherwise, _ := mapEntries(d)
	where := fmt.Sprintf("map %s (%v)", d.args[1], d.position)
	var counted, empty []mapEntry
	kinds := map[string]bool{} // of keys
	for _, e := range append(slices.Clip(entries), mapEntry{"default", otherwise}) {
		if e.value == "" {
			empty = append(empty, e)
			continue
		}
		if k = n.keyOf(e.value); k.unknown != "" {
			return k
		}
		id := fmt.Sprintf("%#v %q %q %v %q", k.characteristics, k.match, k.except, k.exempt, k.headerName)
		counted, kinds[id] = append(counted, e), true
	}
	if len(counted) == 0 {
		return key{unknown: alwaysEmpty}
	}
	if len(kinds) > 1 {
		if slices.Contains(clientHeaders, headerOf(source)) {
			k = key{draft: draft{characteristics: []rule.Characteristic{{Kind: rule.IP}}}}
			k.logs.Add("%s takes the client's address from %s: first set trusted_proxy on the nodes, or all clients behind a "+
				"proxy share one count", where, source)
			return k
		}
		return key{unknown: where + " has keys of several kinds"}
	}
	geo := n.variables[strings.Trim(source, "${}")]
	switch {
	case len(empty) == 0:
	case geo != nil && geo.name == "geo" && !slices.ContainsFunc(entries, mapEntry.isRegex):
		k.byNetwork(where, geo, entries, otherwise)
	case otherwise != "" && source == "$remote_addr":
		for _, e := range empty {
			if addr, err := netip.ParseAddr(e.pattern); err == nil {
				k.exempt = append(k.exempt, listed{netip.PrefixFrom(addr, addr.BitLen()), where})
			} else { // a map does not look up networks
				k.logs.Add("%s exempts clients by %q, which rules cannot do: list their networks under allow", where, e.pattern)
			}
		}
	case otherwise == "" && len(empty) == 1:
		if !k.selectBy(where, source, counted, &k.match) {
			k.unknown = fmt.Sprintf("%s counts only some requests, by %s (%s), which rules cannot match", where, source,
				quoteSome(counted))
		}
	case otherwise != "" && len(counted) == 1 && k.selectBy(where, source, empty, &k.except):
	default:
		k.logs.Add("%s exempts requests by %s (%s), which rules cannot do", where, source, quoteSome(empty))
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

// matchVariables are the variables that rules can match, except headers.
var matchVariables = map[string]int{
	"$request_method": byMethod, "$uri": byPath, "$request_uri": byPath, "$document_uri": byPath, "$host": byHost,
	"$http_host": byHost,
}

// selectBy adds the patterns of a map's entries to the match or the exceptions of k. It returns false if rules cannot
// express them.
func (k *key) selectBy(where, source string, entries []mapEntry, to *match) bool {
	index, ok := matchVariables[source]
	header := headerOf(source)
	if !ok && header != "" && k.headerName == "" {
		index, ok = byHeader, true
	}
	except := to == &k.except
	exact := slices.ContainsFunc(entries, mapEntry.isExact)
	if !ok || len(to[index]) > 0 || except && index == byPath {
		return false
	}
	var patterns []string
	var notes, logs prose.Phrases
	for _, e := range entries {
		list, broader, ok := e.patterns(index)
		if !ok || broader && except {
			return false
		}
		patterns = append(patterns, list...)
		logs.AddIf(broader, "%s: %q matches fewer %s than the rule", where, e.pattern, matchKeys[index])
		logs.AddIf(index == byHeader && e.isExact(),
			"%s: %q matches fewer headers than the rule, which ignores letter case", where, e.pattern)
		notes.AddIf(index == byPath && exact && !e.isExact(),
			"%s: %q matches paths in any letter case, the rule only in this one", where, e.pattern)
	}
	logs.AddIf(source == "$request_uri",
		"%s compares $request_uri, which includes the query; edge compares the path alone", where)
	if index == byHeader {
		k.headerName = header
	}
	k.anyCase = index == byPath && !exact
	to[index] = unique(patterns)
	k.notes, k.logs = append(k.notes, notes...), append(k.logs, logs...)
	return true
}

// patterns returns a rule's patterns for what e matches. broader reports whether they match more. ok is false if a
// rule cannot express them. For a header, that includes an expression that matches an empty value, because a missing
// header has an empty value in nginx.
func (e mapEntry) patterns(index int) (list []string, broader, ok bool) {
	expr := e.expression()
	if index != byHeader {
		list, broader, ok = patternsOf(expr)
		return list, broader, ok && expressible(index, list...)
	}
	p, err := rule.NewPattern(rule.Header, "~"+expr)
	empty, _ := regexp.MatchString(expr, "")
	return []string{p.String()}, false, err == nil && !empty
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
