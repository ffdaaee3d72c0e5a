package rule

import "strings"

// The methods of the HTTP Method Registry of IANA, and QUERY, which is about to join it.
const registered = "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE " +
	"MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH " +
	"PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL"

// registeredMethods leads from each registered method to itself, so that a lookup
// by bytes yields a string.
var registeredMethods = func() map[string]string {
	all := map[string]string{}
	for m := range strings.FieldsSeq(registered) {
		all[m] = m
	}
	return all
}()

// canonicalMethod returns the registered method that method differs from only in
// case, and otherwise method. It does not allocate.
func canonicalMethod(method string) string {
	for i := range len(method) {
		if c := method[i]; 'a' <= c && c <= 'z' {
			return registeredAs(method)
		}
	}
	return method
}

// registeredAs is canonicalMethod for a method with a small letter.
func registeredAs(method string) string {
	var upper [len("UPDATEREDIRECTREF")]byte // the longest
	if len(method) > len(upper) {
		return method
	}
	for i := range len(method) {
		c := method[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	if m, ok := registeredMethods[string(upper[:len(method)])]; ok {
		return m
	}
	return method
}
