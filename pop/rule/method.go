package rule

import "strings"

// registeredMethods are the methods in IANA's HTTP Method Registry, and QUERY, which is about to be added.
var registeredMethods = strings.Fields("ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE " +
	"MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH " +
	"PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL")

// canonicalMethod returns the registered method that differs from method only in case or, if there is
// none, method. It does not allocate.
func canonicalMethod(method string) string {
	for i := range len(method) {
		if c := method[i]; 'a' <= c && c <= 'z' {
			for _, m := range registeredMethods {
				if len(m) == len(method) && strings.EqualFold(m, method) { // the same length, so all ASCII
					return m
				}
			}
			break
		}
	}
	return method
}
