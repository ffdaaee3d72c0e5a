package accesslog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A layout parses the lines of a format. It must be safe for concurrent use.
type layout interface {
	// parse parses s, a non-empty line without its end, into r. It returns "", or the reason
	// why s is not an entry. The reason must not quote the line, since it is shown even in
	// anonymized output.
	parse(s []byte, r *record) (reason string)
}

// A Format is a log format.
type Format struct {
	Name  string
	About string

	layout layout
	names  *names // for formats of JSON objects
}

// Formats returns the named formats. Options.Format can describe others.
func Formats() []Format {
	return []Format{
		{"combined", "Apache's and nginx's log with referer and agent; a virtual host may precede and other fields may follow", clf{}, nil},
		{"clf", "the common log format, which is combined without referer and agent", clf{}, nil},
		{"json", "one JSON object per line, with commonly used names", nil, &object},
		{"caddy", "Caddy's log", nil, &caddy},
		{"traefik", "Traefik's JSON log; its default log is clf", nil, &traefik},
		{"envoy", "Envoy's and Istio's default log, as text or JSON", nil, &envoyObject},
		{"cloudflare", "Cloudflare Logpush's HTTP requests", nil, &cloudflare},
		{"fastly", "the JSON log in Fastly's documentation; Fastly's default log is clf", nil, &fastly},
		{"w3c", "the W3C's extended log format, which IIS writes; #Fields names its columns", newColumns(false, iisFields), nil},
		{"cloudfront", "Amazon CloudFront's standard log", newColumns(true, cloudFrontFields), nil},
		{"alb", "an AWS Application Load Balancer's log", alb, nil},
		{"elb", "an AWS Classic Load Balancer's log", elb, nil},
		{"s3", "Amazon S3's server access log", s3, nil},
		{"aws-waf", "the log of web ACLs in AWS WAF", nil, &awsWAF},
		{"azure-application-gateway", "the access log of Azure Application Gateway", nil, &azureGateway},
		{"bunny", "the log of Bunny CDN", bunny, nil},
		{"heroku", "the lines of Heroku's router", nil, &heroku},
		{"vercel", "Vercel's log drain, as NDJSON", nil, &vercel},
		{"haproxy", "HAProxy's HTTP log, with or without a syslog prefix", haproxy, nil},
		{"squid", "Squid's native log", squid, nil},
		{"ssl_request_log", "Apache's ssl_request_log", sslRequest, nil},
		{"edge", "the access log of edge itself, as text or JSON", nil, &node},
		{"logfmt", "pairs such as status=200, with the names that json knows", nil, &logfmt},
		{"nginx-proxy-manager", "Nginx Proxy Manager's log, and combined in the same file", manager, nil},
		{"zeek", "Zeek's http.log", &columns{zeek: true, tabs: true}, nil},
		{"trace", "seconds since the Unix epoch, a tab, and the client", trace{}, nil},
	}
}

// Formats described by patterns.
var (
	alb = builtIn(`${type_of_connection=https,http,h2,grpcs,ws,wss} $time_iso8601 $elb $client_port $target $t1 $t2 $t3 $status $target_status `+
		`$received $sent "$request" "$http_user_agent"`, "request")
	elb = builtIn(`$time_iso8601 $elb $client_port $backend $t1 $t2 $t3 $status $backend_status $received $sent "$request" "$http_user_agent"`, "request")
	s3  = builtIn(`$owner $bucket [$time_local] $remote_addr $requester $id ${operation=REST.,SOAP.,WEBSITE.,BATCH.,S3.} $key "$request" $status `+
		`$error $bytes $size $t1 $t2 "$http_referer" "$http_user_agent"`, "operation")
	bunny      = builtIn(`$cache|$status|$msec|$bytes|$zone|$remote_addr|$http_referer|$request_uri|$location|$http_user_agent|$id|$country`, "http_user_agent")
	sslRequest = builtIn(`[$time_local] $remote_addr ${version_of_TLS=TLSv1.3,TLSv1.2,TLSv1.1,TLSv1,SSLv3,SSLv2,-} $ssl_cipher "$request" $bytes`, "request")
	squid      = folded(builtIn(`$msec $elapsed $remote_addr $result/$status $bytes $request_method $request_uri $user $hierarchy $type`, "hierarchy"))
	haproxy    = prefixed{builtIn(`$client_port [$time_local] $frontend $backend/$server $t1/$t2/$t3/$t4/$t5 $status $skipped "$request"`, "request"), cutSyslog}
	manager    = alternatives{
		builtIn(`[$time_local] $cache $upstream_status $status - $request_method $scheme $host "$request_uri" [Client $remote_addr] `+
			`[Length $bytes] [Gzip $gzip] [Sent-to $to] "$http_user_agent" "$http_referer"`, "remote_addr"),
		builtIn(`[$time_local] $status - $request_method $scheme $host "$request_uri" [Client $remote_addr] `+
			`[Length $bytes] [Gzip $gzip] "$http_user_agent" "$http_referer"`, "remote_addr"),
		clf{},
	}
	logfmt = object.asLogfmt()
)

// reader returns the layout of f, with fields renamed by change.
func (f Format) reader(change map[string]string) (layout, error) {
	switch {
	case f.names != nil:
		n := *f.names
		if err := n.change(change); err != nil {
			return nil, err
		}
		if f.Name == "envoy" {
			return envoy(n), nil
		}
		return newObjects(n), nil
	case f.Name == "w3c" || f.Name == "cloudfront" || f.Name == "zeek":
		c := *f.layout.(*columns)
		for key := range change {
			if key != "client" && key != "fields" {
				return nil, fmt.Errorf("accesslog: for %s, only client and fields can be named", f.Name)
			}
		}
		c.client = change["client"]
		fields, given := change["fields"]
		if given {
			c.bare = false
		} else {
			fields = c.usual
		}
		c.setFields(strings.Fields(strings.TrimPrefix(fields, "#Fields:")))
		switch {
		case !given:
		case c.has&(1<<client) == 0:
			return nil, fmt.Errorf("accesslog: no field of %q names the client: call it c-ip", fields)
		case !c.complete():
			return nil, fmt.Errorf("accesslog: no field of %q has the time: call them date and time", fields)
		}
		return &c, nil
	case len(change) > 0:
		return nil, fmt.Errorf("accesslog: the fields of %s have no names", f.Name)
	}
	return f.layout, nil
}

// change renames fields.
func (n *names) change(change map[string]string) error {
	n.header = maps.Clone(n.header)
	for key, path := range change {
		if err := n.set(key, []string{path}); err != nil {
			return err
		}
	}
	if len(change) > 0 {
		n.mark, n.http = nil, false
	}
	return nil
}

// set sets the names of a field; key is a key of named, or header:Name.
func (n *names) set(key string, paths []string) error {
	if kind, ok := named[key]; ok {
		n.fields[kind] = paths
		return nil
	}
	name, isHeader := strings.CutPrefix(key, "header:")
	if !isHeader {
		return fmt.Errorf("accesslog: unknown field %q: use time, client, request, method, host, path, query, status, attack, or header:Name", key)
	}
	if n.header == nil {
		n.header = map[string][]string{}
	}
	n.header[headerName([]byte(name))] = paths
	return nil
}

// formatOf returns the layout and the name of the format that text names or describes.
func formatOf(text string) (layout, string, error) {
	if strings.ContainsAny(text, "$%") {
		p, err := newPattern(text)
		return p, "pattern", err
	}
	name, fields, described := strings.Cut(text, ":")
	change := map[string]string{}
	if described {
		for pair := range strings.SplitSeq(fields, ",") {
			key, path, ok := strings.Cut(pair, "=")
			if !ok || key == "" || path == "" {
				return nil, "", fmt.Errorf("accesslog: invalid %q in format %q: write it as in %s:time=at,client=ip", pair, text, name)
			}
			change[key] = path
		}
	}
	formats := Formats()
	i := slices.IndexFunc(formats, func(f Format) bool { return f.Name == name })
	if i < 0 {
		var all []string
		for _, f := range formats {
			all = append(all, f.Name)
		}
		return nil, "", &FormatError{name, all}
	}
	l, err := formats[i].reader(change)
	return l, name, err
}

// CheckFormat returns an error if text is not a valid Options.Format.
func CheckFormat(text string) error {
	if text == "" {
		return nil
	}
	_, _, err := formatOf(text)
	return err
}

// A FormatError reports an unknown format.
type FormatError struct {
	Name  string
	Known []string
}

func (e *FormatError) Error() string { return fmt.Sprintf("accesslog: unknown format %q", e.Name) }

// Hint lists the known formats.
func (e *FormatError) Hint() string {
	return "known formats are " + strings.Join(e.Known, ", ") + ", json:time=…,client=…, or a pattern as in nginx's log_format or Apache's LogFormat"
}
