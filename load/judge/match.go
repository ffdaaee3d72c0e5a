package judge

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/edgelimit/edge/rule"
)

// Properties are the properties of a request that rules examine.
type Properties struct {
	Addr   netip.Addr // of the client
	Method string
	Host   string
	Target string // path and query
	Header [][2]string
}

// A form is a request normalized for matching and counting.
type form struct {
	Properties
	client      netip.Prefix
	path, query string // the path as it was sent
	labels      labels
}

// labels maps the names of label files in the rules to the labels of networks.
type labels map[string]map[netip.Prefix]string

func labelsOf(rules *rule.Set) labels {
	all := labels{}
	for _, r := range rules.Rules() {
		for c := range r.Leaves() {
			if c.Labels != nil && all[c.Name] == nil {
				all[c.Name] = maps.Collect(c.Labels.All())
			}
		}
	}
	return all
}

// longest returns the value of the longest prefix in list that contains a, if any.
func longest[T any](list map[netip.Prefix]T, a netip.Addr) (found T, ok bool) {
	if len(list) == 0 || !a.IsValid() {
		return found, false
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, _ := a.Prefix(bits)
		if found, ok = list[p]; ok {
			return found, true
		}
	}
	return found, false
}

// translators is the prefix of IPv4 addresses that translators embed in IPv6 addresses (RFC 6052).
var translators = netip.MustParsePrefix("64:ff9b::/96")

// formOf returns the form of a request. bits is the prefix of an address that identifies a client.
func formOf(p *Properties, bits rule.ClientPrefix) form {
	f := form{Properties: *p}
	if translators.Contains(f.Addr) {
		f.Addr, _ = netip.AddrFromSlice(f.Addr.AsSlice()[12:])
	}
	f.Addr, f.Method, f.Host = f.Addr.Unmap(), plainMethod(p.Method), plainHost(p.Host)
	f.path, f.query, _ = strings.Cut(p.Target, "?")
	n := cmp.Or(bits.IPv6, 64)
	if f.Addr.Is4() {
		n = cmp.Or(bits.IPv4, 32)
	}
	f.client, _ = f.Addr.Prefix(n)
	return f
}

// registered are the methods that origins may read case-insensitively.
var registered = strings.Fields(`ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE
	MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT QUERY
	REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL`)

func plainMethod(method string) string {
	if upper := strings.ToUpper(method); slices.Contains(registered, upper) {
		return upper
	}
	return method
}

var port = regexp.MustCompile(`^([^:]*|\[.*\]):[^:\]]*$`)

// plainHost returns host in lower case, without port and trailing dots. It shortens IPv6 addresses.
func plainHost(host string) string {
	host = strings.ToLower(port.ReplaceAllString(host, "$1"))
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.Zone() == "" && strings.HasPrefix(host, "[") {
		return "[" + a.String() + "]"
	}
	return strings.TrimRight(host, ".")
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// unescape decodes percent escapes once, and leaves invalid ones as they are.
func unescape(s string) string {
	return escape.ReplaceAllStringFunc(s, func(e string) string {
		c, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(c)})
	})
}

// The steps of interpreting a path, as described in docs/paths.md.

var parameters = regexp.MustCompile(`;[^/]*`)

func strip(p string) string       { return parameters.ReplaceAllString(p, "") }
func backslashes(p string) string { return strings.ReplaceAll(p, `\`, "/") }

func resolve(p string) string {
	plain, last := path.Clean("/"+p), p[strings.LastIndexByte(p, '/')+1:]
	if plain != "/" && (last == "" || last == "." || last == "..") {
		plain += "/"
	}
	return plain
}

var authority = regexp.MustCompile(`^//+[^/]*`)

func asURL(p string) string {
	p = authority.ReplaceAllString(backslashes(p), "")
	var kept []string
	slash := false
	for segment := range strings.SplitSeq(strings.TrimPrefix(p, "/"), "/") {
		dots := unescape(segment)
		slash = segment == "" || dots == "." || dots == ".."
		switch {
		case dots == "..":
			kept = kept[:max(0, len(kept)-1)]
		case dots != ".":
			kept = append(kept, unescape(segment))
		}
	}
	p = "/" + strings.Join(kept, "/")
	if slash {
		p += "/"
	}
	return p
}

var slashes = regexp.MustCompile(`//+`)

// forms returns the forms in which an origin may interpret a path.
func forms(sent string, syntax rule.PathSyntax) (list []string) {
	if sent == "*" {
		return []string{sent}
	}
	sent = cmp.Or(sent, "/")
	plain, ignore := sent, !syntax.ExactParameters
	if ignore {
		plain = strip(sent)
	}
	reads := func(reading rule.PathReading) bool {
		return syntax.Reading == rule.ReadAny || syntax.Reading == reading
	}
	if reads(rule.ReadResolved) {
		list = append(list, resolve(unescape(sent)), resolve(backslashes(unescape(sent))), resolve(backslashes(unescape(plain))))
	}
	if reads(rule.ReadLiteral) {
		list = append(list, unescape(plain))
	}
	if reads(rule.ReadURL) {
		list = append(list, asURL(sent))
	}
	for i, p := range list {
		if ignore {
			p = strip(p)
		}
		p = slashes.ReplaceAllString("/"+p, "/")
		if !syntax.ExactSlash && p != "/" {
			p = strings.TrimSuffix(p, "/")
		}
		if !syntax.ExactCase {
			p = folded(p)
		}
		list[i] = p
	}
	slices.Sort(list)
	return slices.Compact(list)
}

var character = regexp.MustCompile(`[^\x{FFFD}]+`)

// folded maps each character to upper and then to lower case. It leaves invalid UTF-8 as it is.
func folded(s string) string {
	return character.ReplaceAllStringFunc(s, func(valid string) string {
		return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, valid)
	})
}

// paths returns the forms of the path to which r applies. If there are none, r does not apply to the request.
func paths(r *rule.Rule, f *form) []string {
	return slices.DeleteFunc(forms(f.path, r.PathSyntax), func(path string) bool {
		return !matches(&r.Match, f, path, r.PathSyntax) ||
			slices.ContainsFunc(r.Except, func(e rule.Match) bool { return matches(&e, f, path, r.PathSyntax) })
	})
}

// matches reports whether m matches f with its path replaced by path.
func matches(m *rule.Match, f *form, path string, syntax rule.PathSyntax) bool {
	return among(m.Networks, func(s *rule.NetworkSet) bool {
		return slices.ContainsFunc(s.Prefixes, func(p netip.Prefix) bool { return p.Contains(f.Addr) })
	}) && among(m.Hosts, func(h string) bool {
		suffix, wildcard := strings.CutPrefix(h, "*")
		return h == f.Host || wildcard && len(f.Host) > len(suffix) && strings.HasSuffix(f.Host, suffix)
	}) && among(m.Methods, func(method string) bool { return method == f.Method }) && among(m.Paths, func(p string) bool {
		prefix, wildcard := strings.CutSuffix(p, "*")
		return p == path || wildcard && (strings.HasPrefix(path, prefix) || !syntax.ExactSlash && path+"/" == prefix) ||
			strings.Contains(prefix, "*") && (starred(p, path) || !syntax.ExactSlash && strings.HasSuffix(p, "/*") && starred(p, path+"/"))
	})
}

// starred reports whether path matches a pattern with a * before its end.
func starred(pattern, path string) bool {
	prefix, wildcard := strings.CutSuffix(pattern, "*")
	expression := strings.ReplaceAll(regexp.QuoteMeta(prefix), `\*`, "[^/]*") + "$"
	if wildcard {
		expression = strings.TrimSuffix(expression, "$")
	}
	if strings.HasPrefix(pattern, "*") {
		return regexp.MustCompile("/" + expression).MatchString(path)
	}
	return regexp.MustCompile("^" + expression).MatchString(path)
}

// among reports whether list is empty or holds returns true for one of its entries.
func among[T any](list []T, holds func(T) bool) bool {
	return len(list) == 0 || slices.ContainsFunc(list, holds)
}

// maxKeys is the maximum number of keys per rule and request.
const maxKeys = 4

// keys returns the keys under which a rule counts a request: one for each combination of the values of its
// characteristics. If there are more than maxKeys, it returns a single key, shared by all requests with several values.
// If a required value is missing, it returns nil, unless share is set: then the value is treated like any other missing
// value.
func keys(r *rule.Rule, f *form, share bool) []string {
	several := r.ID
	list := []string{r.ID}
	for _, c := range r.Characteristics {
		values := valuesOf(r, c, f)
		for _, alternative := range c.First { // the first one with a value, or else the last
			if c, values = alternative, valuesOf(r, alternative, f); len(values) > 0 {
				break
			}
		}
		slices.Sort(values)
		values = slices.Compact(values)
		for i, v := range values {
			values[i] = c.String() + strconv.Quote(v)
		}
		switch {
		case len(values) == 0 && c.Skip && !share:
			return nil
		case len(values) == 0:
			values = []string{c.String() + " missing"}
		}
		value := values[0]
		if len(values) > 1 {
			value = c.String() + " several"
		}
		several += " " + value
		var longer []string
		for _, begin := range list {
			for _, v := range values {
				longer = append(longer, begin+" "+v)
			}
		}
		list = longer[:min(len(longer), maxKeys+1)]
	}
	if len(list) > maxKeys {
		return []string{several}
	}
	return list
}

// sizesOf parses the prefix lengths for IPv4 and IPv6: 24/48.
func sizesOf(sizes string) (ipv4, ipv6 int) {
	_, _ = fmt.Sscanf(sizes, "%d/%d", &ipv4, &ipv6)
	return ipv4, ipv6
}

// valuesOf returns a request's values of a characteristic.
func valuesOf(r *rule.Rule, c rule.Characteristic, f *form) (values []string) {
	each := func(text, separator string, plain func(string) string) {
		for pair := range strings.SplitSeq(text, separator) {
			if name, value, _ := strings.Cut(pair, "="); pair != "" && plain(name) == c.Name {
				values = append(values, plain(value))
			}
		}
	}
	switch c.Kind {
	case rule.IP:
		return []string{f.client.String()}
	case rule.Network:
		bits, ipv6 := sizesOf(c.Name)
		if f.Addr.Is6() {
			bits = ipv6
		}
		network, _ := f.Addr.Prefix(bits)
		return []string{network.String()}
	case rule.Label:
		if label, ok := longest(f.labels[c.Name], f.Addr); ok {
			return []string{label}
		}
	case rule.Host:
		return []string{f.Host}
	case rule.Path:
		return paths(r, f)
	case rule.Method:
		return []string{f.Method}
	case rule.Query:
		each(f.query, "&", func(s string) string { return unescape(strings.ReplaceAll(s, "+", " ")) })
	case rule.Header:
		for _, h := range f.Header {
			if strings.EqualFold(h[0], c.Name) {
				values = append(values, h[1])
			}
		}
	case rule.Cookie:
		for _, h := range f.Header {
			if strings.EqualFold(h[0], "Cookie") {
				each(h[1], ";", unblank)
			}
		}
		for i, v := range values {
			values[i] = cookie(v)
		}
	}
	return values
}

// written returns a value of an overrides file in the form in which valuesOf returns it.
func written(r *rule.Rule, c rule.Characteristic, value string) string {
	p := Properties{Method: value, Host: value}
	switch c.Kind {
	case rule.IP, rule.Network:
		if network, err := netip.ParsePrefix(value); err == nil {
			return network.Masked().String()
		}
		p.Addr, _ = netip.ParseAddr(value)
	case rule.Host, rule.Method:
	case rule.Path:
		return forms(value, r.PathSyntax)[0]
	default:
		return value
	}
	f := formOf(&p, rule.ClientPrefix{})
	return valuesOf(r, c, &f)[0]
}

// width ranks rules by how many clients share a key. It returns 0 if clients do not share keys.
func width(r *rule.Rule) int {
	const label, all = 33, 34
	width := all
	for _, c := range r.Characteristics {
		switch c.Kind {
		case rule.IP, rule.Header, rule.Cookie, rule.Query, rule.First:
			return 0
		case rule.Network:
			bits, _ := sizesOf(c.Name)
			width = min(width, label-bits)
		case rule.Label:
			width = min(width, label)
		}
	}
	return width
}

// unblank trims blanks from s, byte by byte.
func unblank(s string) string {
	blank := func(at int) bool { return s != "" && strings.IndexByte(" \t\x85\xa0", s[at]) >= 0 }
	for blank(0) {
		s = s[1:]
	}
	for blank(len(s) - 1) {
		s = s[:len(s)-1]
	}
	return s
}

var backslashed = regexp.MustCompile(`(?s)\\[0-3][0-7][0-7]|\\.|%[0-9a-fA-F]{2}`)

// cookie returns the decoded value of a cookie.
func cookie(s string) string {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = backslashed.ReplaceAllStringFunc(s[1:len(s)-1], func(e string) string {
			switch c, _ := strconv.ParseUint(e[1:], 8, 8); {
			case e[0] == '%':
				return unescape(e)
			case len(e) == 4:
				return string([]byte{byte(c)})
			}
			return e[1:]
		})
	} else {
		s = unescape(s)
	}
	return strings.ReplaceAll(s, "+", " ")
}

// unknown returns the reason why this package cannot judge a rule, or "" if it can. A test ensures that it knows every
// field of a rule.
func unknown(r *rule.Rule) string {
	switch {
	case r.CostSource() != "":
		return "the origin's response gives the cost of a request, in " + r.CostSource()
	case hides(r) && r.Response.Body == "":
		return "a shadow_ban without a body: its responses look like those of the origin"
	case len(r.AllConditions()) > 0:
		return "conditions about headers, cookies or query parameters"
	case !actions[r.Action].judged:
		return fmt.Sprintf("action %d", r.Action)
	case r.PathSyntax.Reading > rule.ReadURL:
		return fmt.Sprintf("path_reading %d", r.PathSyntax.Reading)
	}
	for _, c := range r.Characteristics {
		for _, c := range append([]rule.Characteristic{c}, c.First...) {
			if c.Kind < rule.IP || c.Kind > rule.First {
				return fmt.Sprintf("characteristic %d", c.Kind)
			}
		}
	}
	for _, l := range r.Limits {
		if _, ok := kinds[fmt.Sprint(l.Estimate)]; !ok {
			return fmt.Sprintf("estimate %d", l.Estimate)
		}
	}
	return ""
}
