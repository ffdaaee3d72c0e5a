package judge

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/edgelimit/edge/pop/rule"
)

// Properties are the properties of a request that rules look at.
type Properties struct {
	Addr   netip.Addr // of the client
	Method string
	Host   string
	Target string // path and query
	Header [][2]string
}

// A form is a request in the spelling by which it is matched and counted.
type form struct {
	addr         netip.Addr
	client       netip.Prefix
	method, host string
	path, query  string // the path as it was sent
	header       [][2]string
}

// formOf returns the form of a request whose clients are networks of this many bits.
func formOf(p *Properties, bits rule.ClientPrefix) form {
	path, query, _ := strings.Cut(p.Target, "?")
	addr := p.Addr.Unmap()
	n := cmp.Or(bits.IPv6, 64)
	if addr.Is4() {
		n = cmp.Or(bits.IPv4, 32)
	}
	client, _ := addr.Prefix(n)
	return form{addr: addr, client: client, method: plainMethod(p.Method), host: plainHost(p.Host), path: path, query: query, header: p.Header}
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

// plainHost returns a host in lower case, without its port and trailing dots. An IPv6 address is
// returned in its shortest form.
func plainHost(host string) string {
	host = strings.ToLower(port.ReplaceAllString(host, "$1"))
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err == nil && a.Zone() == "" {
			return "[" + a.String() + "]"
		}
		return host
	}
	return strings.TrimRight(host, ".")
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// unescape decodes percent escapes once. Invalid ones stay.
func unescape(s string) string {
	return escape.ReplaceAllStringFunc(s, func(e string) string {
		c, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(c)})
	})
}

// The steps of reading a path, as in docs/rules.md.

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

// forms returns the forms in which an origin may read a path.
func forms(sent string, syntax rule.PathSyntax) (list []string) {
	if sent == "*" {
		return []string{sent}
	}
	if sent == "" {
		sent = "/"
	}
	any, ignore := syntax.Reading == rule.ReadAny, !syntax.ExactParameters
	if any || syntax.Reading == rule.ReadResolved {
		list = append(list, resolve(unescape(sent)), resolve(backslashes(unescape(sent))))
		if ignore {
			list = append(list, resolve(backslashes(unescape(strip(sent)))))
		}
	}
	if any || syntax.Reading == rule.ReadLiteral {
		if ignore {
			list = append(list, unescape(strip(sent)))
		} else {
			list = append(list, unescape(sent))
		}
	}
	if any || syntax.Reading == rule.ReadURL {
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

// folded returns the lower case of the upper case of each character. Invalid UTF-8 stays.
func folded(s string) string {
	var b strings.Builder
	for i, r := range s {
		if _, size := utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && size == 1 {
			b.WriteByte(s[i])
		} else {
			b.WriteRune(unicode.ToLower(unicode.ToUpper(r)))
		}
	}
	return b.String()
}

// paths returns the forms of a request's path that a rule names.
func paths(r *rule.Rule, f *form) []string {
	return slices.DeleteFunc(forms(f.path, r.PathSyntax), func(form string) bool {
		return !among(r.Paths, func(p string) bool {
			prefix, wildcard := strings.CutSuffix(p, "*")
			return p == form || wildcard && (strings.HasPrefix(form, prefix) || !r.PathSyntax.ExactSlash && form+"/" == prefix)
		})
	})
}

// concerns reports whether a rule's match holds for a request.
func concerns(r *rule.Rule, f *form) bool {
	return among(r.Hosts, func(h string) bool {
		suffix, wildcard := strings.CutPrefix(h, "*")
		return h == f.host || wildcard && len(f.host) > len(suffix) && strings.HasSuffix(f.host, suffix)
	}) && among(r.Methods, func(m string) bool { return m == f.method }) && len(paths(r, f)) > 0
}

// among reports whether holds is true for an entry of list, or list is empty.
func among(list []string, holds func(string) bool) bool {
	return len(list) == 0 || slices.ContainsFunc(list, holds)
}

// mostKeys is the maximum number of keys of a rule for one request.
const mostKeys = 4

// keys returns the keys under which a rule counts a request: one for each combination of the
// values of its characteristics. If there are too many, it returns one key, shared by all requests
// with several values. If a required value is missing it returns none, unless share is set: then
// it counts like any other missing value.
func keys(r *rule.Rule, f *form, share bool) []string {
	several := r.ID
	list := []string{r.ID}
	for _, c := range r.Characteristics {
		values := valuesOf(r, c, f)
		slices.Sort(values)
		values = slices.Compact(values)
		for i, v := range values {
			values[i] = strconv.Quote(v)
		}
		switch {
		case len(values) == 0 && c.Skip && !share:
			return nil
		case len(values) == 0:
			values = []string{"missing"}
		}
		if len(values) == 1 {
			several += " " + values[0]
		} else {
			several += " several"
		}
		var longer []string
		for _, begin := range list {
			for _, v := range values {
				longer = append(longer, begin+" "+v)
			}
		}
		list = longer[:min(len(longer), mostKeys+1)]
	}
	if len(list) > mostKeys {
		return []string{several}
	}
	return list
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
	case rule.Host:
		return []string{f.host}
	case rule.Path:
		return paths(r, f)
	case rule.Method:
		return []string{f.method}
	case rule.Query:
		each(f.query, "&", func(s string) string { return unescape(strings.ReplaceAll(s, "+", " ")) })
	case rule.Header:
		for _, h := range f.header {
			if strings.EqualFold(h[0], c.Name) {
				values = append(values, h[1])
			}
		}
	case rule.Cookie:
		for _, h := range f.header {
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

// unblank trims blanks from s.
func unblank(s string) string {
	blank := func(c byte) bool { return strings.IndexByte(" \t\x85\xa0", c) >= 0 }
	for s != "" && blank(s[0]) {
		s = s[1:]
	}
	for s != "" && blank(s[len(s)-1]) {
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

// known are the fields of a rule that this package understands or may ignore.
var known = []string{
	"ID", "Index", "File", "Line", "Hosts", "Methods", "Paths", "PathSyntax", "Statuses", "Characteristics", "Limits", "MitigationTimeout", "Action", "Response", "OnFailure",
	"Threshold", "Period", "SubWindows", "Estimate", "Kind", "Name", "Skip", "Reading", "ExactCase", "ExactSlash", "ExactParameters",
}

// unknown returns what this package cannot judge in a rule, "" if it can judge all of it.
func unknown(r *rule.Rule) string {
	if s := strange(reflect.ValueOf(*r)); s != "" {
		return s
	}
	if r.Action > rule.Close {
		return fmt.Sprintf("action %d", r.Action)
	}
	if r.Action == rule.ShadowBan && r.Response.Body == "" {
		return "a shadow_ban without a body: its answers look like those of the origin"
	}
	if s := strange(reflect.ValueOf(r.PathSyntax)); s != "" || r.PathSyntax.Reading > rule.ReadURL {
		return cmp.Or(s, fmt.Sprintf("path_reading %d", r.PathSyntax.Reading))
	}
	for _, c := range r.Characteristics {
		if c.Kind < rule.IP || c.Kind > rule.Query {
			return fmt.Sprintf("characteristic %d", c.Kind)
		}
		if s := strange(reflect.ValueOf(c)); s != "" {
			return s
		}
	}
	for _, l := range r.Limits {
		if s := strange(reflect.ValueOf(l)); s != "" {
			return s
		}
		if _, ok := kinds[fmt.Sprint(l.Estimate)]; !ok {
			return fmt.Sprintf("estimate %d", l.Estimate)
		}
	}
	return ""
}

// strange returns the name of a field that is set but unknown, or "".
func strange(v reflect.Value) string {
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && !slices.Contains(known, f.Name) && !v.Field(i).IsZero() {
			return f.Name
		}
	}
	return ""
}
