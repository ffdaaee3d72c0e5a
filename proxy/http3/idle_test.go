package http3_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/http3"
)

// A connection without requests is closed after IdleTimeout, or after ReadHeaderTimeout if its last request was refused.
func TestIdle(t *testing.T) {
	const refused, passed = "\xd0", "\xd1" // DELETE and GET in the static table
	for _, tt := range []struct {
		methods []string
		want    time.Duration
	}{
		{nil, time.Minute},
		{[]string{passed}, time.Minute},
		{[]string{refused}, 10 * time.Second},
		{[]string{refused, passed}, time.Minute},
	} {
		bubble.Test(t, func(t *testing.T) {
			var router simnet.PerfectRouter
			at := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
			startAt(t, simnet.NewSimConn(at, &router), func(o *http3.Options) { o.ReadHeaderTimeout = 10 * time.Second })
			tr := &quic.Transport{Conn: simnet.NewSimConn(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1}, &router)}
			defer tr.Conn.Close()
			defer tr.Close()
			c, err := tr.Dial(t.Context(), at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}},
				&quic.Config{KeepAlivePeriod: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			for _, method := range tt.methods {
				if _, err := io.ReadAll(send(t, c, strings.Replace(get, "\xd1", method, 1), true)); err != nil {
					t.Fatal(err)
				}
			}
			idle := time.Now()
			<-c.Context().Done()
			if got := time.Since(idle); got != tt.want {
				t.Errorf("after %q, the connection is closed after %v, want %v", tt.methods, got, tt.want)
			}
		})
	}
}
