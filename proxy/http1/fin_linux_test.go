package http1_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
)

// A client that shuts down its side with its last request sees the connection end after the answer,
// even though its FIN arrived in the same packet as the request, so that no event follows.
func TestEndInThePacketOfARequest(t *testing.T) {
	for _, path := range []string{"/refused", "/passed"} {
		addr := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		conn := dial(t, addr).(*net.TCPConn)
		r := bufio.NewReader(conn)
		for i := range 3 {
			if i == 2 {
				cork(t, conn)
			}
			if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				_ = conn.CloseWrite()
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("%s, answer %d: %v", path, i, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("%s: after the last answer the client reads %v, want EOF", path, err)
		}
	}
}

// cork makes the socket send nothing until it is full or shut down.
func cork(t *testing.T, conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, 1) })
	}
	if err != nil {
		t.Fatal(err)
	}
}
