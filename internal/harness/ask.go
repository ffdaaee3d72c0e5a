package harness

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/edgelimit/edge/counter/shard"
)

// Ask sends r, which has no body, over a new connection to the server that accepts from pipe. The connection comes
// from r.RemoteAddr. Ask returns the whole answer as it was sent, or "" if the server closed the connection without
// one.
func Ask(t testing.TB, pipe *shard.Pipe, r *http.Request) string {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	if err := pipe.Give(context.Background(),
		from{far, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(r.RemoteAddr))}); err != nil {
		t.Error(err)
		return ""
	}
	var request, answer bytes.Buffer
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.URL.RequestURI(), r.Host)
	_ = r.Header.Write(&request)
	request.WriteString("\r\n")
	go func() { _, _ = near.Write(request.Bytes()) }()
	if resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(near, &answer)), r); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	return answer.String()
}

// from is a connection that comes from an address.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }
