package page

import (
	"net/url"
	"strings"
	"testing"
)

// A search is for an address, a network, a prefix of a key, or a node.
func TestSearch(t *testing.T) {
	for search, want := range map[string]string{
		"":                    "/invalid Prefix//active",
		"203.0.113.7":         "/203.0.113.7/32//active",
		"::ffff:203.0.113.7":  "/203.0.113.7/32//active",
		"2001:db8::1":         "/2001:db8::1/128//active",
		"203.0.113.0/24":      "/203.0.113.0/24//active",
		" AB12 ":              "ab12/invalid Prefix//active",
		"edge-2":              "/invalid Prefix/edge-2/active",
		"<script>":            "/invalid Prefix/<script>/active",
		"edge-2&all=1":        "/invalid Prefix/edge-2/",
		"edge-2&state=lifted": "/invalid Prefix/edge-2/lifted",
	} {
		search, more, _ := strings.Cut(search, "&")
		values, err := url.ParseQuery("search=" + url.QueryEscape(search) + "&" + more)
		if err != nil {
			t.Fatal(err)
		}
		v := viewOf(values)
		q, problem := v.query, v.problem
		if got := strings.Join([]string{q.Key, q.Client.String(), q.Node, q.State}, "/"); got != want || problem != "" {
			t.Errorf("%q is searched for as %s, want %s; problem %q", search, got, want, problem)
		}
	}
}
