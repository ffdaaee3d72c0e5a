package http2_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/proxy/http1"
)

// A relay1 is a relay for HTTP/1.1 clients.
type relay1 struct{ origin *http1.Origin }

func (h relay1) Serve(c http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	return h.origin, passing{s: c, r: r}
}

func (relay1) Malformed(_ netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	return explain(err)
}

// An abrupt is an origin that begins an answer of unknown length during an upload, and then ends it in one of several ways.
type abrupt struct {
	begun chan struct{} // receives when the client has read the beginning
}

type connKey struct{}

func (a abrupt) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.ReadFull(r.Body, make([]byte, 1))
	socket := r.Context().Value(connKey{}).(net.Conn)
	if secure, ok := socket.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	end := func() {
		<-a.begun
		if r.URL.Path == "/reset" {
			_ = socket.(*net.TCPConn).SetLinger(0)
		}
		if r.URL.Path != "/abort" {
			_ = socket.Close()
		}
	}
	if r.ProtoMajor == 2 {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		end()
		panic(http.ErrAbortHandler)
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	head := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n"
	if r.Header.Get("X-Framing") == "close" {
		head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun"
	}
	_, _ = io.WriteString(conn, head)
	end()
}

// startAbrupt starts the origin, and returns it as the engines see it.
func startAbrupt(t *testing.T, protocol string, a abrupt) *http1.Origin {
	return startOrigin(t, protocol, a.ServeHTTP)
}

// startOrigin starts an origin whose handler finds its connection in the request's context.
func startOrigin(t *testing.T, protocol string, serve http.HandlerFunc) *http1.Origin {
	back := httptest.NewUnstartedServer(serve)
	back.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	t.Cleanup(back.Close)
	addr := func() string { return back.Listener.Addr().String() }
	dial := func(protocols ...string) (net.Conn, error) {
		if back.TLS == nil {
			return net.Dial("tcp", addr())
		}
		return tls.Dial("tcp", addr(), &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	}
	switch protocol {
	case "http":
		back.Start()
		return http1.NewOrigin(dialer(addr()), patience)
	case "h2c":
		back.Config.Protocols = new(http.Protocols)
		back.Config.Protocols.SetUnencryptedHTTP2(true)
		back.Start()
		return http1.NewHTTP2Origin("http", dial, patience)
	}
	back.EnableHTTP2 = protocol == "h2"
	back.StartTLS()
	return http1.NewHTTP2Origin("https", dial, patience)
}

// endless is an upload that does not end until it is closed.
type endless struct {
	closed chan struct{}
	size   int
}

func (e endless) Read(p []byte) (int, error) {
	select {
	case <-e.closed:
		return 0, io.ErrClosedPipe
	case <-time.After(10 * time.Microsecond):
		return min(len(p), e.size), nil
	}
}

// If an origin resets its connection or stream during an upload, the client never gets the part of the answer that has
// arrived as if it were whole.
func TestAbortedAnswers(t *testing.T) {
	for _, protocol := range []string{"http", "https", "h2c", "h2"} {
		a := abrupt{make(chan struct{})}
		origin := startAbrupt(t, protocol, a)
		t.Cleanup(origin.Close)
		e := start(t, nil, nil)
		e.h.origin = origin
		s := http1.NewServer(http1.Options{Handler: relay1{origin}, Limits: http1.Limits{ReadHeaderTimeout: patience, IdleTimeout: patience, BodyTimeout: patience, MaxHeaderBytes: 64 << 10}})
		for _, version := range []int{1, 2} {
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
				if version == 2 {
					return e.connect(t), nil
				}
				return connect(t, s.Accept), nil
			}
			if version == 2 {
				tr.Protocols.SetUnencryptedHTTP2(true)
			} else {
				tr.Protocols.SetHTTP1(true)
			}
			t.Cleanup(tr.CloseIdleConnections)
			for _, how := range []string{"/abort", "/reset"} {
				for _, framing := range []string{"chunked", "close"} {
					if strings.HasPrefix(protocol, "h2") && framing == "close" || strings.HasPrefix(protocol, "http") && how == "/abort" {
						continue
					}
					name := fmt.Sprintf("%s, %s, %s, to an HTTP/%d client", protocol, framing, how, version)
					for _, size := range []int{1, 30_000} {
						for range 10 {
							body := endless{make(chan struct{}), size}
							r, err := http.NewRequestWithContext(t.Context(), "POST", "http://a.example"+how, body)
							if err != nil {
								t.Fatal(err)
							}
							r.Header.Set("X-Framing", framing)
							resp, err := tr.RoundTrip(r)
							if err != nil {
								t.Fatalf("%s: %v", name, err)
							}
							if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
								t.Fatalf("%s: the beginning: %v", name, err)
							}
							a.begun <- struct{}{}
							if rest, err := io.ReadAll(resp.Body); err == nil {
								t.Errorf("%s, parts of %d bytes: %q and a clean end", name, size, rest)
							}
							resp.Body.Close()
							close(body.closed)
						}
					}
				}
			}
		}
	}
}

// An answer that ends with the origin's connection is whole if the origin has shut down its side, even if it resets the
// connection later because it does not read the upload.
func TestWholeAnswersDuringUploads(t *testing.T) {
	for range 10 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan struct{})
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 100))
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\n\r\nwhole")
			_ = conn.(*net.TCPConn).CloseWrite()
			<-read
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}()
		origin := http1.NewOrigin(dialer(ln.Addr().String()), patience)
		s := http1.NewServer(http1.Options{Handler: relay1{origin}, Limits: http1.Limits{ReadHeaderTimeout: patience, IdleTimeout: patience, BodyTimeout: patience, MaxHeaderBytes: 64 << 10}})
		conn := connect(t, s.Accept)
		go func() {
			_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000000\r\n\r\n")
			for err == nil {
				_, err = conn.Write(make([]byte, 10_000))
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		close(read)
		if body, err := io.ReadAll(resp.Body); string(body) != "whole" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		_ = conn.Close()
		_ = ln.Close()
		origin.Close()
	}
}

// An HTTP/1.0 client, which gets answers of unknown length until the connection ends, gets a reset if its answer is cut off.
func TestAbortedAnswerToHTTP10(t *testing.T) {
	a := abrupt{make(chan struct{})}
	s := http1.NewServer(http1.Options{Handler: relay1{startAbrupt(t, "http", a)}, Limits: http1.Limits{ReadHeaderTimeout: patience, IdleTimeout: patience, BodyTimeout: patience, MaxHeaderBytes: 64 << 10}})
	conn := connect(t, s.Accept)
	_, _ = io.WriteString(conn, "POST /reset HTTP/1.0\r\nHost: a.example\r\nContent-Length: 1\r\n\r\na")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	a.begun <- struct{}{}
	if rest, err := io.ReadAll(resp.Body); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v; want a reset", rest, err)
	}
}
