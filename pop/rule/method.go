package rule

import "strings"

// registeredMethods are those of the HTTP Method Registry of IANA, and QUERY, which is about to join it.
var registeredMethods = strings.Fields("ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE " +
	"MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH " +
	"PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL")

// canonicalMethod returns the registered method that method differs from only in
// case, and otherwise method. It does not allocate.
func canonicalMethod(method string) string {
	for i := range len(method) {
		if c := method[i]; 'a' <= c && c <= 'z' {
			for _, m := range registeredMethods {
				if len(m) == len(method) && strings.EqualFold(m, method) { // of one length, so of ASCII letters
					return m
				}
			}
			break
		}
	}
	return method
}
