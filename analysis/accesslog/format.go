package accesslog

import (
	"fmt"
	"slices"
	"strings"
	"sync"
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
	Name  string `json:"name"`
	About string `json:"about"`

	layout layout
}

// Formats returns the named formats. Options.Format can describe others. Among similar formats, the strictest comes last.
func Formats() []Format { return slices.Clone(formats()) }

var formats = sync.OnceValue(func() []Format {
	common := clf{builtIn(`"$request" $status $skipped "$http_referer" "$http_user_agent"`, "")}
	return []Format{
		{"combined", "Apache's and nginx's log with referer and agent; a virtual host may precede and other fields may follow", common},
		{"clf", "the common log format, which is combined without referer and agent", common},
		{"logfmt", "pairs such as status=200, with the names that json knows",
			objectsWith("headers=request.headers. logfmt")},
		{"json", "one JSON object per line, with commonly used names", objectsWith("headers=request.headers.")},
		{"caddy", "Caddy's log", objectsWith("headers=request.headers. mark=request.proto")},
		{"traefik", "Traefik's JSON log; its default log is clf",
			objectsWith("headers=request_ mark=RequestMethod|RequestPath")},
		{"envoy", "Envoy's and Istio's default log, as text or JSON", alternatives{
			builtIn(envoyHead+`$details $termination "$failure" `+envoyTail+istioTail, "client_port"),
			builtIn(envoyHead+`"$mixer" "$failure" `+envoyTail+istioTail, "client_port"), // until Istio 1.8
			builtIn(envoyHead+envoyTail, "upstream"),
			objectsWith("header:X-Forwarded-For=x-forwarded-for|x_forwarded_for header:X-Request-Id=x-request-id|request_id|x_request_id " +
				"mark=response_flags|upstream_cluster|upstream_host|route_name|response_code_details"),
		}},
		{"cloudflare", "Cloudflare Logpush's HTTP requests",
			objectsWith("headers=RequestHeaders. mark=EdgeStartTimestamp|EdgeEndTimestamp")},
		{"fastly", "the JSON log in Fastly's documentation; Fastly's default log is clf",
			objectsWith("mark=fastly_is_edge|fastly_server|fastly_pop|fastly_is_shield|response_state")},
		{"w3c", "the W3C's extended log format, which IIS writes; #Fields names its columns",
			&columns{names: described(w3cNames), escape: '+'}}, // IIS replaces spaces in header fields
		{"iis", "the format of IIS other than w3c and clf: values between commas", builtIn(`$remote_addr, $user, $time, $service, $computer, `+
			`$server, $took, $received, $sent, $status, $error, $request_method, $uri, $args,`, "args")},
		{"cloudfront", "Amazon CloudFront's standard log", cloudFront()},
		{"alb", "an AWS Application Load Balancer's log", builtIn(`$type `+
			`$time_iso8601 $elb $client_port $target $t1 $t2 $t3 $status $target_status $received $sent "$request" "$http_user_agent"`, "request")},
		{"elb", "an AWS Classic Load Balancer's log", builtIn(
			`$time_iso8601 $elb $client_port $backend $t1 $t2 $t3 $status $backend_status $received $sent "$request" "$http_user_agent"`, "request")},
		{"s3", "Amazon S3's server access log", builtIn(`$owner $bucket [$time_local] $remote_addr $requester $id `+
			`$operation $key "$request" $status $error $bytes $size $t1 $t2 "$http_referer" "$http_user_agent"`, "operation")},
		{"aws-waf", "the log of web ACLs in AWS WAF",
			objectsWith("headers=httpRequest.headers. mark=webaclId|terminatingRuleId")},
		{"azure-application-gateway", "the access log of Azure Application Gateway",
			objectsWith("mark=properties.httpStatus|HttpStatus")},
		{"bunny", "the log of Bunny CDN", builtIn(
			`$cache|$status|$msec|$bytes|$zone|$remote_addr|$http_referer|$request_uri|$location|$http_user_agent|$id|$country`, "http_user_agent")},
		{"heroku", "the lines of Heroku's router", objectsWith("mark=dyno logfmt")},
		{"vercel", "Vercel's log drain, as NDJSON", objectsWith("mark=proxy.clientIp")},
		{"haproxy", "HAProxy's HTTP log, with or without a syslog prefix", prefixedLayout{builtIn(
			`$client_port [$time_local] $frontend $backend/$server $t1/$t2/$t3/$t4/$t5 $status $skipped "$request"`, "request")}},
		{"squid", "Squid's native log", builtIn(
			`$msec $elapsed $remote_addr $result/$status $bytes $request_method $request_uri $user $hierarchy $type`, "hierarchy")},
		{"ssl_request_log", "Apache's ssl_request_log", builtIn(
			`[$time_local] $remote_addr $tls $ssl_cipher "$request" $bytes`, "request")},
		{"uwsgi", "uWSGI's own log", builtIn(`[pid: $pid|app: $app|req: $number] $remote_addr ($user) {$variables} [$time] `+
			`$request_method $request_uri => generated $bytes in $took (HTTP/$version $status) $headers`, "headers")},
		{"edge", "the access log of edge itself, as text or JSON", objectsWith("mark=verdict logfmt")},
		{"nginx-proxy-manager", "Nginx Proxy Manager's log, which may also have combined lines", alternatives{
			builtIn(`[$time_local] $cache $upstream_status $status `+manager+`[Sent-to $to] "$http_user_agent" "$http_referer"`, "remote_addr"),
			builtIn(`[$time_local] $status `+manager+`"$http_user_agent" "$http_referer"`, "remote_addr"),
			common,
		}},
		{"zeek", "Zeek's http.log", &columns{names: described(zeekNames), tabs: true}},
		{"trace", "seconds since the Unix epoch, a tab, and the client", builtIn("$msec\t$client", "client")},
	}
})

// manager is the part between status and agent, which both forms of Nginx Proxy Manager's log share.
const manager = `- $request_method $scheme $host "$request_uri" [Client $remote_addr] [Length $bytes] [Gzip $gzip] `

// In Envoy's text format, the client is the first address of X-Forwarded-For, which can be forged. Istio's also has
// the address of the connection.
const (
	envoyHead = `[$time_iso8601] "$request" $status $flags `
	envoyTail = `$received $sent $duration $upstream_time "$http_x_forwarded_for" "$http_user_agent" "$http_x_request_id" "$host" "$upstream"`
	istioTail = ` $cluster $local $listener $client_port`
)

// renamed returns the layout of f with fields renamed by change.
func (f Format) renamed(change map[string]string) (layout, error) {
	switch l := f.layout.(type) {
	case *objects:
		return l.renamed(change)
	case *columns:
		return l.renamed(f.Name, change)
	case alternatives: // only Envoy's last alternative has names
		if o, ok := l[len(l)-1].(*objects); ok {
			last, err := o.renamed(change)
			return append(slices.Clip(l[:len(l)-1]), last), err
		}
	}
	return nil, fmt.Errorf("accesslog: the fields of %s have no names", f.Name)
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
	var known []string
	for _, f := range formats() {
		switch known = append(known, f.Name); {
		case f.Name == name && described:
			l, err := f.renamed(change)
			return l, name, err
		case f.Name == name:
			return f.layout, name, nil
		}
	}
	return nil, "", &FormatError{name, known}
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

// objectNames are the names of the members of objects. If several addresses may be the client, the first is the one
// that the server itself considers the client. Names that only one vendor uses come first, because such a vendor may
// use a common name for something else: for the time when the line was read, or for the path of a function.
const objectNames = `
	time=StartUTC|StartLocal|EdgeStartTimestamp|EdgeEndTimestamp|proxy.timestamp|start_time|timeStamp|TimeGenerated|
		time_iso8601|time_local|timestamp|@timestamp|msec|time_start|time|ts|datetime|date_time|requestTime|requestTimeEpoch|logged_at|
		started_at|reqTimeSec|timestamp(ms)|date
	date=date clock=time
	client=ClientHost|ClientAddr|proxy.clientIp|downstream_remote_address|downstream_remote_address_without_port|
		downstream_direct_remote_address|
		client_ip|clientIp|clientIP|ClientIP|ClientIp|client_address|client_addr|clientAddr|remote_ip|remoteIp|remote_addr|remoteAddr|
		remote_address|remoteAddress|remote_host|clientip|remoteip|remoteIP|cliIP|c-ip|CIp|source_ip|src_ip|ip|ip_address|ipAddress|client|
		remote|httpRequest.remoteIp|httpRequest.clientIp|properties.clientIp|properties.clientIP|request.client_ip|request.remote_ip|
		request.remote_addr|client.ip|source.ip|client.address|source.address|id.orig_h|requestContext.identity.sourceIp|
		http_x_forwarded_for|x_forwarded_for|x-forwarded-for|xff|fwd
	request=request|request_line
	method=RequestMethod|ClientRequestMethod|proxy.method|:method|
		request_method|requestMethod|method|http_method|httpMethod|HttpMethod|reqMethod|verb|cs-method|CsMethod|httpRequest.requestMethod|
		httpRequest.httpMethod|http.request.method|properties.httpMethod|request.method
	host=RequestHost|RequestAddr|ClientRequestHost|proxy.host|:authority|properties.originalHost|OriginalHost|
		http_host|host|Host|request_host|server_name|vhost|virtual_host|authority|x-host-header|cs(Host)|CsHost|url.domain|
		properties.hostName|properties.host|request.host|reqHost
	path=RequestPath|ClientRequestURI|ClientRequestPath|proxy.path|x-envoy-original-path|x-envoy-origin-path|:path|
		properties.originalRequestUriWithArgs|OriginalRequestUriWithArgs|
		request_uri|requestUri|RequestUri|uri|url|path|request_path|request_url|requestPath|reqPath|resourcePath|cs-uri-stem|CsUriStem|
		httpRequest.requestUrl|httpRequest.uri|url.original|url.path|properties.requestUri|request.uri|request.url|request.path
	query=args|query_string|queryString|query|queryStr|cs-uri-query|CsUriQuery|httpRequest.args|url.query|properties.requestQuery|RequestQuery
	status=DownstreamStatus|OriginStatus|EdgeResponseStatus|proxy.statusCode|responseCodeSent|
		status|status_code|statusCode|response_status|response_code|responseCode|http_status|HttpStatus|code|sc-status|ScStatus|response|
		httpRequest.status|http.response.status_code|properties.httpStatusCode|properties.httpStatus|response.status
	attack=attack
	header:User-Agent=ClientRequestUserAgent|proxy.userAgent|
		http_user_agent|user_agent|userAgent|useragent|user-agent|agent|UA|UserAgent|cs(User-Agent)|request_user_agent|httpRequest.userAgent|
		user_agent.original|properties.userAgent
	header:Referer=ClientRequestReferer|proxy.referer|
		http_referer|http_referrer|referer|referrer|request_referer|cs(Referer)|httpRequest.referer|http.request.referrer `
