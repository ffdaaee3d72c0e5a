package accesslog

// envoy is the default log of Envoy and Istio, as text or one JSON object per line.
//
// In Envoy's text, the client is the first address of X-Forwarded-For, which can be forged. Istio's text also has the
// address of the connection.
func envoy(n names) layout { return alternatives{istioText, oldIstioText, envoyText, newObjects(n)} }

const (
	envoyHead = `[$time_iso8601] "$request" $status $flags `
	envoyTail = `$received $sent $duration $upstream_time "$http_x_forwarded_for" "$http_user_agent" "$http_x_request_id" "$host" "$upstream"`
	istioTail = ` $cluster $local $listener $client_port`
)

var (
	envoyText = builtIn(envoyHead+envoyTail, "upstream")
	istioText = builtIn(envoyHead+`$details $termination "$failure" `+envoyTail+istioTail, "client_port")

	// Until Istio 1.8.
	oldIstioText = builtIn(envoyHead+`"$mixer" "$failure" `+envoyTail+istioTail, "client_port")
)
