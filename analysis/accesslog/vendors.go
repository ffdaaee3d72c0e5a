package accesslog

// Where servers and networks that log in JSON have what is wanted. Of several addresses
// that may be the client, the first is the one that the server itself takes for it.

var caddy = names{
	time:    []string{"ts"},
	client:  []string{"request.client_ip", "request.remote_ip", "request.remote_addr"},
	method:  []string{"request.method"},
	host:    []string{"request.host"},
	path:    []string{"request.uri"},
	status:  []string{"status"},
	headers: "request.headers",
	mark:    []string{"request.proto"},
}

var traefik = names{
	time:   []string{"StartUTC", "StartLocal", "time"},
	client: []string{"ClientHost", "ClientAddr"},
	method: []string{"RequestMethod"},
	host:   []string{"RequestHost", "RequestAddr"},
	path:   []string{"RequestPath"},
	status: []string{"DownstreamStatus", "OriginStatus"},
	prefix: "request_",
	http:   true,
}

var envoyObject = names{
	time: []string{"start_time", "@timestamp", "timestamp"},
	client: []string{
		"downstream_remote_address", "downstream_remote_address_without_port",
		"downstream_direct_remote_address", "x-forwarded-for", "x_forwarded_for",
	},
	method: []string{"method", ":method"},
	host:   []string{":authority", "authority", "host"},
	path:   []string{"x-envoy-original-path", "x-envoy-origin-path", "path", ":path"},
	status: []string{"response_code"},
	header: map[string][]string{
		"User-Agent":      {"user-agent", "user_agent"},
		"Referer":         {"referer", "referrer"},
		"X-Forwarded-For": {"x-forwarded-for", "x_forwarded_for"},
		"X-Request-Id":    {"x-request-id", "request_id", "x_request_id"},
	},
	mark: []string{"response_flags", "upstream_cluster", "upstream_host", "route_name", "response_code_details"},
}

var cloudflare = names{
	time:   []string{"EdgeStartTimestamp", "EdgeEndTimestamp"},
	client: []string{"ClientIP"},
	method: []string{"ClientRequestMethod"},
	host:   []string{"ClientRequestHost"},
	path:   []string{"ClientRequestURI", "ClientRequestPath"},
	status: []string{"EdgeResponseStatus"},
	header: map[string][]string{
		"User-Agent": {"ClientRequestUserAgent"},
		"Referer":    {"ClientRequestReferer"},
	},
	headers: "RequestHeaders",
}

var fastly = names{
	time:    []string{"timestamp", "time_start", "start_time", "time"},
	client:  []string{"client_ip"},
	request: []string{"request"},
	method:  []string{"request_method", "method"},
	host:    []string{"host", "request_host"},
	path:    []string{"url", "request_url"},
	status:  []string{"response_status", "status"},
	header: map[string][]string{
		"User-Agent": {"request_user_agent", "user_agent"},
		"Referer":    {"request_referer", "referer"},
	},
	mark: []string{"fastly_is_edge", "fastly_server", "fastly_pop", "fastly_is_shield", "response_state"},
}

// object is what most others call it: nginx's variables, the Elastic Common Schema,
// Google's and Azure's load balancers, W3C's fields, and what people write themselves.
var object = names{
	time: []string{
		"time_iso8601", "@timestamp", "timestamp", "time_local", "msec", "time", "ts", "datetime",
		"date_time", "start_time", "time_start", "requestTime", "logged_at", "started_at", "timeStamp", "TimeGenerated", "reqTimeSec", "timestamp(ms)", "date",
	},
	client: []string{
		"client_ip", "clientIp", "clientIP", "ClientIP", "client_address", "client_addr", "clientAddr",
		"remote_addr", "remoteAddr", "remote_ip", "remoteIp", "remote_address", "remoteAddress", "remote_host",
		"clientip", "remoteip", "remoteIP", "cliIP", "c-ip", "source_ip", "src_ip", "ip", "ip_address", "ipAddress", "client", "httpRequest.remoteIp", "httpRequest.clientIp",
		"properties.clientIp", "properties.clientIP", "request.remote_ip", "request.client_ip", "client.ip", "source.ip",
		"client.address", "source.address", "id.orig_h", "requestContext.identity.sourceIp", "http_x_forwarded_for",
		"x_forwarded_for", "xff",
	},
	request: []string{"request", "request_line"},
	method: []string{
		"request_method", "requestMethod", "method", "http_method", "httpMethod", "reqMethod", "verb", "cs-method",
		"httpRequest.requestMethod", "httpRequest.httpMethod", "http.request.method", "properties.httpMethod", "request.method",
	},
	host: []string{
		"http_host", "host", "server_name", "vhost", "virtual_host", "authority", "x-host-header", "cs(Host)", "url.domain",
		"properties.hostName", "request.host", "reqHost",
	},
	path: []string{
		"request_uri", "requestUri", "uri", "url", "path", "request_path", "requestPath", "reqPath", "resourcePath", "cs-uri-stem", "httpRequest.requestUrl",
		"httpRequest.uri", "url.original", "url.path", "properties.requestUri", "request.uri", "request.url", "request.path",
	},
	query: []string{"args", "query_string", "queryString", "query", "queryStr", "cs-uri-query", "httpRequest.args", "url.query"},
	status: []string{
		"status", "status_code", "statusCode", "response_status", "response_code", "responseCode", "http_status", "code", "sc-status",
		"httpRequest.status", "http.response.status_code", "properties.httpStatusCode", "response.status",
	},
	header: map[string][]string{
		"User-Agent": {
			"http_user_agent", "user_agent", "userAgent", "useragent", "user-agent", "agent", "UA", "cs(User-Agent)",
			"httpRequest.userAgent", "user_agent.original", "properties.userAgent",
		},
		"Referer": {"http_referer", "http_referrer", "referer", "referrer", "cs(Referer)", "httpRequest.referer", "http.request.referrer"},
	},
	headers: "request.headers",
	http:    true,
}
