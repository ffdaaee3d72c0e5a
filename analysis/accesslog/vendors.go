package accesslog

// Names of the fields in the JSON logs of servers and networks. If several addresses may be
// the client, the first is the one that the server itself considers the client.

const caddy = `
	time=ts client=request.client_ip|request.remote_ip|request.remote_addr method=request.method host=request.host path=request.uri status=status
	headers=request.headers. mark=request.proto`

const traefik = `
	time=StartUTC|StartLocal|time client=ClientHost|ClientAddr method=RequestMethod host=RequestHost|RequestAddr path=RequestPath
	status=DownstreamStatus|OriginStatus headers=request_ http`

const envoyNames = `
	time=start_time|@timestamp|timestamp
	client=downstream_remote_address|downstream_remote_address_without_port|downstream_direct_remote_address|x-forwarded-for|x_forwarded_for
	method=method|:method host=:authority|authority|host path=x-envoy-original-path|x-envoy-origin-path|path|:path status=response_code
	header:User-Agent=user-agent|user_agent header:Referer=referer|referrer header:X-Forwarded-For=x-forwarded-for|x_forwarded_for
	header:X-Request-Id=x-request-id|request_id|x_request_id mark=response_flags|upstream_cluster|upstream_host|route_name|response_code_details`

const cloudflare = `
	time=EdgeStartTimestamp|EdgeEndTimestamp client=ClientIP method=ClientRequestMethod host=ClientRequestHost path=ClientRequestURI|ClientRequestPath
	status=EdgeResponseStatus header:User-Agent=ClientRequestUserAgent header:Referer=ClientRequestReferer headers=RequestHeaders.`

const fastly = `
	time=timestamp|time_start|start_time|time client=client_ip request=request method=request_method|method host=host|request_host path=url|request_url
	status=response_status|status header:User-Agent=request_user_agent|user_agent header:Referer=request_referer|referer
	mark=fastly_is_edge|fastly_server|fastly_pop|fastly_is_shield|response_state`

// azureGateway is the log of Azure Application Gateway, in a storage account or in a table of Log Analytics.
const azureGateway = `
	time=timeStamp|TimeGenerated|time|timestamp client=properties.clientIP|properties.clientIp|ClientIp|ClientIP method=properties.httpMethod|HttpMethod
	host=properties.originalHost|properties.host|OriginalHost|Host
	path=properties.originalRequestUriWithArgs|properties.requestUri|OriginalRequestUriWithArgs|RequestUri query=properties.requestQuery|RequestQuery
	status=properties.httpStatus|HttpStatus header:User-Agent=properties.userAgent|UserAgent mark=properties.httpStatus|HttpStatus http`

const awsWAF = `
	time=timestamp client=httpRequest.clientIp method=httpRequest.httpMethod path=httpRequest.uri query=httpRequest.args status=responseCodeSent
	headers=httpRequest.headers. mark=webaclId|terminatingRuleId`

const vercel = `
	time=proxy.timestamp|timestamp client=proxy.clientIp method=proxy.method host=proxy.host|host path=proxy.path status=proxy.statusCode|statusCode
	header:User-Agent=proxy.userAgent header:Referer=proxy.referer mark=proxy.clientIp`

const heroku = `
	client=fwd method=method host=host path=path status=status mark=dyno logfmt`

// edge is the access log of edge itself, as text or JSON.
const edge = `
	time=time client=client method=method host=host path=uri status=status mark=verdict|msg is=msg|request logfmt`

// commonNames are the names that most others use: nginx's variables, the Elastic Common Schema,
// Google's and Azure's load balancers, W3C's fields, and common custom names.
const commonNames = `
	time=time_iso8601|@timestamp|timestamp|time_local|msec|time|ts|datetime|date_time|start_time|time_start|requestTime|logged_at|started_at|
		timeStamp|TimeGenerated|reqTimeSec|timestamp(ms)|date
	client=client_ip|clientIp|clientIP|ClientIP|client_address|client_addr|clientAddr|remote_addr|remoteAddr|remote_ip|remoteIp|remote_address|
		remoteAddress|remote_host|clientip|remoteip|remoteIP|cliIP|c-ip|source_ip|src_ip|ip|ip_address|ipAddress|client|httpRequest.remoteIp|
		httpRequest.clientIp|properties.clientIp|properties.clientIP|request.remote_ip|request.client_ip|client.ip|source.ip|client.address|
		source.address|id.orig_h|requestContext.identity.sourceIp|http_x_forwarded_for|x_forwarded_for|xff
	request=request|request_line
	method=request_method|requestMethod|method|http_method|httpMethod|reqMethod|verb|cs-method|httpRequest.requestMethod|
		httpRequest.httpMethod|http.request.method|properties.httpMethod|request.method
	host=http_host|host|server_name|vhost|virtual_host|authority|x-host-header|cs(Host)|url.domain|properties.hostName|request.host|reqHost
	path=request_uri|requestUri|uri|url|path|request_path|requestPath|reqPath|resourcePath|cs-uri-stem|httpRequest.requestUrl|httpRequest.uri|
		url.original|url.path|properties.requestUri|request.uri|request.url|request.path
	query=args|query_string|queryString|query|queryStr|cs-uri-query|httpRequest.args|url.query
	status=status|status_code|statusCode|response_status|response_code|responseCode|http_status|code|sc-status|httpRequest.status|
		http.response.status_code|properties.httpStatusCode|response.status
	attack=attack
	header:User-Agent=http_user_agent|user_agent|userAgent|useragent|user-agent|agent|UA|cs(User-Agent)|httpRequest.userAgent|
		user_agent.original|properties.userAgent
	header:Referer=http_referer|http_referrer|referer|referrer|cs(Referer)|httpRequest.referer|http.request.referrer headers=request.headers. http`
