package accesslog

import (
	"fmt"
	"slices"
	"strings"
)

// A layout reads the lines of a format. It is used by several workers at once.
type layout interface {
	// parse reads a line that is not empty, without its end, into r. It returns why the
	// line is not an entry, or nothing. No part of the line is in what it returns: that is
	// shown as it is, also where clients are not to be named.
	parse(s []byte, r *record) (reason string)
}

// A Format is one that logs are read in.
type Format struct {
	Name    string
	About   string
	Example string // a line of it

	layout layout
	names  *names // of a format of JSON objects
}

// Formats returns the formats that can be named, except json:… and patterns, which
// Options.Format tells of.
func Formats() []Format {
	return []Format{
		{"combined", "Apache's and nginx's log with referer and agent, also with a virtual host in front and more fields behind",
			`203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET /a?b=c HTTP/1.1" 200 512 "-" "curl/8.5.0"`, clf{}, nil},
		{"clf", "the common log format, which is combined without referer and agent",
			`203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET /a?b=c HTTP/1.1" 200 512`, clf{}, nil},
		{"json", "JSON objects, one a line, with the names that nginx, load balancers and people commonly use",
			`{"time":"2026-01-02T15:04:05+00:00","remote_addr":"203.0.113.7","request":"GET /a?b=c HTTP/1.1","status":200}`, nil, &object},
		{"caddy", "Caddy's log",
			`{"ts":1767366245.1,"request":{"client_ip":"203.0.113.7","proto":"HTTP/2.0","method":"GET","host":"example.com","uri":"/a?b=c"},"status":200}`, nil, &caddy},
		{"traefik", "Traefik's log as JSON; its other one is clf",
			`{"ClientHost":"203.0.113.7","RequestHost":"example.com","RequestMethod":"GET","RequestPath":"/a?b=c","RequestProtocol":"HTTP/2.0","DownstreamStatus":200,"StartUTC":"2026-01-02T15:04:05.1Z"}`, nil, &traefik},
		{"envoy", "Envoy's and Istio's default log, as text or JSON",
			`[2026-01-02T15:04:05.100Z] "GET /a?b=c HTTP/2" 200 - 0 512 3 2 "203.0.113.7" "curl/8.5.0" "6b1e" "example.com" "10.0.0.1:80"`, nil, &envoyObject},
		{"cloudflare", "Cloudflare Logpush's HTTP requests",
			`{"ClientIP":"203.0.113.7","ClientRequestHost":"example.com","ClientRequestMethod":"GET","ClientRequestURI":"/a?b=c","EdgeResponseStatus":200,"EdgeStartTimestamp":"2026-01-02T15:04:05Z"}`, nil, &cloudflare},
		{"fastly", "the JSON log that Fastly's documentation has; its default one is clf",
			`{"timestamp":"2026-01-02T15:04:05+0000","client_ip":"203.0.113.7","host":"example.com","url":"/a?b=c","request_method":"GET","response_status":200,"fastly_is_edge":true}`, nil, &fastly},
		{"w3c", "the W3C's extended log format, which IIS writes; #Fields names its columns",
			"#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status\n2026-01-02 15:04:05 203.0.113.7 GET /a b=c 200", newW3C(), nil},
		{"cloudfront", "Amazon CloudFront's standard log",
			"2026-01-02\t15:04:05\tFRA50-P2\t512\t203.0.113.7\tGET\td111.cloudfront.net\t/a\t200\t-\tcurl/8.5.0\tb=c\t-\tHit\t6b1e\texample.com\thttps\t80\t0.001", newCloudFront(), nil},
		{"alb", "an AWS Application Load Balancer's log",
			`https 2026-01-02T15:04:05.100000Z app/lb/50dc 203.0.113.7:2817 10.0.0.1:80 0.0 0.1 0.0 200 200 80 512 "GET https://example.com:443/a?b=c HTTP/1.1" "curl/8.5.0" TLS_AES TLSv1.3`, alb{}, nil},
		{"elb", "an AWS Classic Load Balancer's log",
			`2026-01-02T15:04:05.100000Z lb 203.0.113.7:2817 10.0.0.1:80 0.0 0.1 0.0 200 200 80 512 "GET https://example.com:443/a?b=c HTTP/1.1" "curl/8.5.0" - -`, elb{}, nil},
		{"s3", "Amazon S3's server access log",
			`79a5 bucket [02/Jan/2026:15:04:05 +0000] 203.0.113.7 - 3E57 REST.GET.OBJECT a "GET /bucket/a?b=c HTTP/1.1" 200 - 512 512 9 8 "-" "curl/8.5.0" -`, s3{}, nil},
		{"haproxy", "HAProxy's HTTP log, with or without what syslog puts in front",
			`203.0.113.7:2817 [02/Jan/2026:15:04:05.100] http-in static/srv1 10/0/30/69/109 200 512 - - ---- 1/1/1/1/0 0/0 "GET /a?b=c HTTP/1.1"`, haproxy{}, nil},
		{"squid", "Squid's native log",
			`1767366245.100    109 203.0.113.7 TCP_MISS/200 512 GET http://example.com/a?b=c - DIRECT/10.0.0.1 text/html`, squid{}, nil},
		{"nginx-proxy-manager", "Nginx Proxy Manager's log, and combined in the same file",
			`[02/Jan/2026:15:04:05 +0000] - 200 200 - GET https example.com "/a?b=c" [Client 203.0.113.7] [Length 512] [Gzip -] [Sent-to app] "curl/8.5.0" "-"`, manager{}, nil},
		{"zeek", "Zeek's http.log",
			"#fields\tts\tid.orig_h\tmethod\thost\turi\tstatus_code\n1767366245.1\t203.0.113.7\tGET\texample.com\t/a?b=c\t200", &columns{zeek: true, tabs: true}, nil},
		{"trace", "seconds since the Unix epoch, a tab, and the client", "1767366245\t203.0.113.7", trace{}, nil},
	}
}

// reader returns what reads f, with other names of fields where change gives them.
func (f Format) reader(change map[string]string) (layout, error) {
	switch {
	case f.names != nil:
		n := *f.names
		if err := n.change(change); err != nil {
			return nil, err
		}
		if f.Name == "envoy" {
			return newEnvoy(n), nil
		}
		return newObjects(n), nil
	case f.Name == "w3c" || f.Name == "cloudfront":
		c := *f.layout.(*columns)
		for key, name := range change {
			if key != "client" {
				return nil, fmt.Errorf("accesslog: of %s only the field of the client can be named", f.Name)
			}
			c.client = name
		}
		usual := iisFields
		if f.Name == "cloudfront" {
			usual = cloudFrontFields
		}
		c.setFields(strings.Fields(usual))
		return &c, nil
	case len(change) > 0:
		return nil, fmt.Errorf("accesslog: the fields of %s have no names", f.Name)
	}
	return f.layout, nil
}

// change names fields anew: time, client, request, method, host, path, query, status, and
// header:Name.
func (n *names) change(change map[string]string) error {
	for key, path := range change {
		list := []string{path}
		switch key {
		case "time":
			n.time = list
		case "client":
			n.client = list
		case "request":
			n.request = list
		case "method":
			n.method = list
		case "host":
			n.host = list
		case "path":
			n.path = list
		case "query":
			n.query = list
		case "status":
			n.status = list
		default:
			name, ok := strings.CutPrefix(key, "header:")
			if !ok {
				return fmt.Errorf("accesslog: there is no field %q to be named: use time, client, request, method, host, path, query, status, or header:Name", key)
			}
			header := map[string][]string{}
			for k, v := range n.header {
				header[k] = v
			}
			header[headerName([]byte(name))] = list
			n.header = header
		}
	}
	if len(change) > 0 {
		n.mark, n.http = nil, false
	}
	return nil
}

// formatOf returns the reader of the format of that name or description.
func formatOf(text string) (layout, string, error) {
	if strings.Contains(text, "$") {
		p, err := newPattern(text)
		return p, "pattern", err
	}
	name, fields, described := strings.Cut(text, ":")
	change := map[string]string{}
	if described {
		for pair := range strings.SplitSeq(fields, ",") {
			key, path, ok := strings.Cut(pair, "=")
			if !ok || key == "" || path == "" {
				return nil, "", fmt.Errorf("accesslog: in the format %q, %q is not as in %s:time=at,client=ip", text, pair, name)
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

// CheckFormat says what is wrong with a format as Options.Format has it.
func CheckFormat(text string) error {
	if text == "" {
		return nil
	}
	_, _, err := formatOf(text)
	return err
}

// A FormatError says that there is no format of that name.
type FormatError struct {
	Name  string
	Known []string
}

func (e *FormatError) Error() string { return fmt.Sprintf("accesslog: there is no format %q", e.Name) }

// Hint says what there is.
func (e *FormatError) Hint() string {
	return "formats are " + strings.Join(e.Known, ", ") + ", json:time=…,client=…, or a pattern as in nginx's log_format"
}
