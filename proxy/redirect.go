package proxy

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/proxy/http1"
)

// isChallenge reports whether path is that of an ACME challenge, by which a certificate authority checks who controls
// the host (RFC 8555, 8.3). The characters of tokens cannot lead to another path.
func isChallenge(path string) bool {
	token, ok := strings.CutPrefix(path, "/.well-known/acme-challenge/")
	return ok && !strings.ContainsAny(token, `/\%?`)
}

// needsTLS reports whether the client must send the request again over TLS. It need not if it uses TLS to a trusted
// proxy in front, or if the request is a health check of such a proxy, which may insist on a 200.
func (x *exchange) needsTLS() bool {
	o, secure := &x.p.o, x.c.Secure()
	if o.Redirect == 0 || x.origin == o.Origins.ACME || x.decision.Verdict == limit.Own {
		return false
	}
	for f := range x.r.Fields {
		if x.trusted && f.Name == http1.XForwardedProto {
			client, _, _ := strings.Cut(borrow(x.r.ValueOf(f)), ",")
			secure = strings.EqualFold(client, "https")
		}
	}
	return !secure
}

// redirected redirects the request to the same URL with https if it needs TLS, and reports whether it does. Host and
// path were checked, so they can neither end the field nor name another host.
func (x *exchange) redirected() bool {
	if !x.needsTLS() {
		return false
	}
	host, path := x.asked.Host, borrow(x.r.Path())
	if host == "" {
		x.answer(http.StatusBadRequest, "a request without a host cannot be redirected to https")
		return true
	}
	fields := append(x.p.appendNode(x.lines[:0]), plainText...)
	fields = append(append(fields, "Location: https://"...), host...)
	if port := x.p.o.Redirect; port != 443 {
		fields = strconv.AppendInt(append(fields, ':'), int64(port), 10)
	}
	x.lines = append(append(fields, strings.TrimPrefix(path, "*")...), "\r\n"...)
	status := http.StatusPermanentRedirect
	if x.method == http.MethodGet || x.method == http.MethodHead {
		status = http.StatusMovedPermanently // every client knows this one
	}
	x.c.Answer(x.r, status, x.lines, "use https\n")
	return true
}
