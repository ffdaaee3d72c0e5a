package http1_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// Bounds of a request's head, as documented.
const (
	maxElements = 16
	maxFields   = 100
	fieldSize   = 32
)

// fill returns a head of about n bytes: before, and then as many copies of field as fit. field may contain a verb for
// the number of the copy.
func fill(n int, before, field string) string {
	var b strings.Builder
	b.WriteString("GET / HTTP/1.1\r\nHost: a\r\n" + before)
	for i := 0; b.Len()+len(field) < n; i++ {
		if strings.Contains(field, "%") {
			fmt.Fprintf(&b, field, i)
		} else {
			b.WriteString(field)
		}
	}
	return b.String() + "\r\n"
}

// hostile are heads of up to 60 KB that could cost more than a plain one of their size.
var hostile = []struct{ name, head string }{
	{"plain", fill(8<<10, "", "X-Field: "+strings.Repeat("a value of an ordinary length", 3)+"\r\n")},
	{"one long field", fill(60<<10, "X: "+strings.Repeat("a", 59<<10)+"\r\n", "X-Long-Field: a\r\n")},
	{"many options", fill(60<<10, "Connection: "+strings.Repeat("a,", 14<<10)+"\r\n", "b:\r\n")},
	{"as many options as allowed", fill(8<<10, "Connection: "+strings.Repeat(strings.Repeat("a", 50)+"c,", maxElements)+"\r\n", strings.Repeat("a", 50)+"b:\r\n")},
	{"empty options", fill(60<<10, "Connection: "+strings.Repeat(",", 59<<10)+"\r\n", "b:\r\n")},
	{"tiny fields", fill(60<<10, "", "b:\r\n")},
	{"a few tiny fields", fill(400, "", "b:\r\n")},
	{"upgrades", fill(60<<10, "Connection: upgrade\r\nUpgrade: "+strings.Repeat("a,", 29<<10)+"\r\n", "b:\r\n")},
	{"lengths", fill(60<<10, "", "Content-Length: 0\r\n")},
	{"TE", fill(900, "", "TE: gzip\r\n")},
}

// BenchmarkHostileHeads shows what a byte of each head costs.
func BenchmarkHostileHeads(b *testing.B) {
	for _, test := range hostile {
		b.Run(strings.ReplaceAll(test.name, " ", "-"), func(b *testing.B) {
			var r http1.Request
			head := []byte(test.head)
			for b.Loop() {
				_, _ = r.Scan(head, 64<<10)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(head)), "ns/byte")
		})
	}
}

// statusOf returns the status with which head is refused, or 0, whether it arrives whole or byte by byte.
func statusOf(t *testing.T, head string, maxBytes int) int {
	t.Helper()
	var whole, bytewise http1.Request
	n, err := whole.Scan([]byte(head), maxBytes)
	m, err2 := bytewise.ScanBytewise([]byte(head), maxBytes)
	if (err == nil) != (err2 == nil) || err == nil && (n != len(head) || m != n) {
		t.Errorf("%.60q: whole %d, %v; byte by byte %d, %v", head, n, err, m, err2)
	}
	if malformed, ok := errors.AsType[*http1.Error](err); ok {
		return malformed.Status
	}
	return 0
}

// Every list in a head is bounded, in number and in bytes: a head beyond a bound is refused before the rest is read.
func TestBoundsOfHeads(t *testing.T) {
	const line = "GET / HTTP/1.1\r\nHost: a\r\n"
	long := "X: " + strings.Repeat("a", 500) + "\r\n"
	size := len(line) + len(long) + len("\r\n") + 2*fieldSize
	for _, test := range []struct {
		name, head     string
		maxBytes, want int
	}{
		{"as many options as allowed", line + "Connection: " + strings.Repeat("a,", maxElements-1) + "b\r\n\r\n", 1 << 16, 0},
		{"more options", line + "Connection: " + strings.Repeat("a,", maxElements) + "b\r\n\r\n", 1 << 16, 400},
		{"more empty options", line + "Connection: " + strings.Repeat(",", maxElements) + "\r\n\r\n", 1 << 16, 400},
		{"more fields of options", line + strings.Repeat("Connection: a\r\n", maxElements+1) + "\r\n", 1 << 16, 400},
		{"more upgrades", line + "Connection: upgrade\r\nUpgrade: " + strings.Repeat("a,", maxElements) + "\r\n\r\n", 1 << 16, 400},
		{"as many fields as allowed", line + strings.Repeat("a:\r\n", maxFields-1) + "\r\n", 1 << 16, 0},
		{"more fields", line + strings.Repeat("a:\r\n", maxFields) + "\r\n", 1 << 16, 431},
		{"as many bytes as allowed", line + long + "\r\n", size, 0},
		{"a byte more", line + long + "\r\n", size - 1, 431},
		{"tiny fields", line + strings.Repeat("a:\r\n", 20) + "\r\n", 20 * fieldSize, 431},
		{"fields without an end", line + strings.Repeat("a:\r\n", maxFields+1), 1 << 16, 431},
	} {
		if got := statusOf(t, test.head, test.maxBytes); got != test.want {
			t.Errorf("%s: status %d, want %d", test.name, got, test.want)
		}
	}
}

// Trailers that are not forwarded count toward the bound of all trailers.
func TestBoundOfTrailers(t *testing.T) {
	if _, _, _, _, err := http1.Dechunk([]byte("0\r\n"+strings.Repeat("Date: x\r\n", 1000)+"\r\n"), 4096); err == nil {
		t.Error("1000 trailers that are not forwarded were accepted, want an error")
	}
}

// Fields that Connection names are not forwarded, and neither are those that CGI reads as one of them. All others are,
// and so are fields that the meaning of a message depends on.
func TestFieldsThatConnectionNames(t *testing.T) {
	var r http1.Request
	head := "GET / HTTP/1.1\r\nHost: a\r\nConnection: x-hop, Cookie\r\nX-HOP: 1\r\nx_Hop: 1\r\nX-Hop-: 1\r\ncookie: 1\r\nX_Other: 1\r\n" +
		"Connection: host, X_Other2, date\r\nX-Other2: 1\r\nX_OTHER2: 1\r\nDate: 1\r\n\r\n"
	if _, err := r.Scan([]byte(head), 1<<16); err != nil {
		t.Fatal(err)
	}
	var names []string
	for f := range r.Fields {
		names = append(names, string(r.NameOf(f)))
	}
	if got, want := strings.Join(names, " "), "Host X-Hop- X_Other X-Other2 Date"; got != want {
		t.Errorf("forwarded %s, want %s", got, want)
	}
}

// A telling handler answers with what its connection holds of the budget, and what was sent for the request so far.
type telling struct {
	relay
	budget *conns.Budget
}

func (h telling) Serve(c http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	status, bytes := c.Sent()
	c.Answer(200, nil, fmt.Sprintf("%d held, %d sent with %d", h.budget.Bytes(), bytes, status))
	return nil, nil
}

// A head that comes in pieces holds memory of the budget until it is complete. What was sent in answer to one request
// does not count for the next.
func TestPiecesHoldMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		budget := conns.NewBudget(1<<20, 0, func(bool) {})
		client, conn := net.Pipe()
		s := http1.NewServer(options(telling{budget: budget}))
		go s.Accept(conn, http1.Start{Since: time.Now(), Held: budget.Holder(conn, netip.MustParseAddr("192.0.2.1"))})()
		answers := bufio.NewReader(client)
		for range 2 {
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\n")
			synctest.Wait()
			if budget.Bytes() == 0 {
				t.Error("half of a head holds no memory")
			}
			_, _ = io.WriteString(client, "Host: x\r\n\r\n")
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := io.ReadAll(answer.Body); string(got) != "0 held, 0 sent with 0" {
				t.Errorf("in the next request: %s, want nothing", got)
			}
		}
		_ = client.Close()
	})
}
