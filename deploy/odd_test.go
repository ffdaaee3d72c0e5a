//go:build linux

package deploy_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
)

// oddTargets returns spellings of path that some origin reads as path, and some that origins read in different ways.
func oddTargets(path string, n int) (targets []string) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	for range n {
		var name strings.Builder
		for _, c := range path[1:] {
			switch r.IntN(8) {
			case 0:
				fmt.Fprintf(&name, "%%%02x", c)
			case 1:
				name.WriteString(strings.ToUpper(string(c)))
			default:
				name.WriteRune(c)
			}
		}
		before := ""
		for range r.IntN(3) {
			before += pick("/.", "/x/..", "/%2e", "/x/%2E%2e", "/", `/x\..`, "/x%5c..", "/;a", "/./", "/x/y/../..")
		}
		if strings.HasPrefix(before, "/;a") {
			before = "" // a segment that only some origins drop
		}
		after := pick("", "", "/", "/.", "?a=b", "?", ";a=b", ";", "/?a", "#", "#a", "?#", "%", "%2", "%zz", "/x/..")
		targets = append(targets, pick("", "", "", "http://example.com", "HTTP://example.com:80")+before+"/"+name.String()+after)
	}
	return targets
}

// testOdd checks that a client whose requests for /limited are refused cannot reach the origin with any spelling that
// some origin reads as /limited, nor with a request that the node, as a proxy, would refuse.
func (s *sidecar) testOdd() {
	s.t.Helper()
	const client = 90
	eventually(s.t, "/limited is refused", func() bool {
		resp, _ := s.send(client, "GET /limited HTTP/1.1\nHost: example.com\n\n")
		return resp.StatusCode == http.StatusTooManyRequests
	})
	passed := 0
	try := func(text string) {
		conn := s.dial(client, text)
		defer conn.Close()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return // refused without an answer
		}
		if saw := resp.Header.Get("X-Saw"); saw != "" {
			s.t.Errorf("%q reaches the origin as %s", text, saw)
			passed++
		}
	}
	for _, target := range oddTargets("/limited", 700) {
		if try("GET " + target + " HTTP/1.1\nHost: example.com\nConnection: close\n\n"); passed > 10 {
			s.t.Fatal("giving up")
		}
	}
	for _, host := range []string{"example.com,x", "example.com, x", "x@example.com", "example.com:80:90", "example.com/x", "example..com", "example.com#", "example.com:x", "[example.com]", "example.com\x01"} {
		try("GET /limited HTTP/1.1\nHost: " + host + "\nConnection: close\n\n")
	}
	for _, method := range []string{"CONNECT", "TRACE", "connect", "trace", "G@T", "GET\x01"} {
		try(method + " /limited HTTP/1.1\nHost: example.com\nConnection: close\n\n")
	}
	if resp, err := s.get(s.by(client), "GET", "/other"); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Errorf("another path: %v, %v", resp, err)
	}
}
