package http1_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy/http1"
)

// The origin's timeout begins at the end of the request, however long the client takes to send it, and
// whatever the origin sends before its answer. The body of the answer may take longer.
func TestSlowUploads(t *testing.T) {
	for _, test := range []struct {
		name    string
		interim string        // the origin sends it a second after the request
		answer  time.Duration // how long the origin takes
		body    time.Duration // how long its body takes
		status  int
	}{
		{"an answer in time", "", 50 * time.Second, 0, 200},
		{"a slow body", "", 50 * time.Second, 2 * time.Minute, 200},
		{"an answer too late", "", 70 * time.Second, 0, 502},
		{"an interim answer", "HTTP/1.1 102 Processing\r\n\r\n", 50 * time.Second, 0, 200},
		{"an interim answer, and the final one too late", "HTTP/1.1 102 Processing\r\n\r\n", 70 * time.Second, 0, 502},
	} {
		bubble.Test(t, func(t *testing.T) {
			defer time.Sleep(time.Hour) // until all goroutines have returned
			near, far := net.Pipe()
			o := http1.NewOrigin(func() (net.Conn, error) { return near, nil }, time.Minute)
			defer o.Close()
			go func() {
				defer far.Close()
				if r, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					if test.interim != "" { // a pipe's reader notices even an empty write
						time.Sleep(time.Second)
						_, _ = io.WriteString(far, test.interim)
					}
					time.Sleep(test.answer)
					_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
					time.Sleep(test.body)
					_, _ = io.WriteString(far, "ok")
				}
			}()
			client, conn := net.Pipe()
			defer client.Close()
			s := http1.NewServer(http1.Options{Handler: relay{o}, Limits: http1.Limits{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, BodyTimeout: time.Minute, MaxHeaderBytes: 64 << 10}})
			go s.Accept(conn, http1.Start{})()
			go func() {
				_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9\r\n\r\n")
				for range 9 {
					time.Sleep(20 * time.Second)
					if _, err := io.WriteString(client, "x"); err != nil {
						return
					}
				}
			}()
			answers := bufio.NewReader(client)
			answer, err := http.ReadResponse(answers, nil)
			if err == nil && answer.StatusCode < 200 {
				answer, err = http.ReadResponse(answers, nil)
			}
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			if answer.StatusCode != test.status {
				t.Errorf("%s: status %d, want %d", test.name, answer.StatusCode, test.status)
			}
			if body, err := io.ReadAll(answer.Body); answer.StatusCode == 200 && string(body) != "ok" {
				t.Errorf("%s: body %q, %v", test.name, body, err)
			}
		})
	}
}

// A lateConn is a connection whose writes that end in "end" return when it is closed.
type lateConn struct {
	net.Conn
	closed context.Context
	close  func()
}

func (c lateConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if strings.HasSuffix(string(p), "end") {
		<-c.closed.Done()
	}
	return n, err
}

func (c lateConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// A reader answers when it has read the request.
type reader struct{}

func (reader) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, err
}

// A client may send another request after an answer that comes before the node knows that the upload has ended.
func TestAnswersBeforeUploadsEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dial := harness.Origin(reader{})
		o := http1.NewOrigin(func() (net.Conn, error) {
			conn, err := dial(context.Background(), "", "")
			closed, cancel := context.WithCancel(context.Background())
			return lateConn{conn, closed, cancel}, err
		}, patience)
		defer o.Close()
		client, conn := net.Pipe()
		defer client.Close()
		go http1.NewServer(options(relay{o})).Accept(conn, http1.Start{Since: time.Now()})()
		answers := bufio.NewReader(client)
		for range 3 {
			_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
			synctest.Wait()
			go func() { _, _ = io.WriteString(client, "end") }()
			resp, err := http.ReadResponse(answers, nil)
			if err != nil || resp.StatusCode != 200 || resp.Close {
				t.Fatalf("%+v, %v; want 200, and the connection kept", resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			time.Sleep(time.Second)
		}
	})
}

// A trailing client sends a body, and long trailers.
type trailing struct{ bodiless }

func (*trailing) Arrived() bool { return false }
func (*trailing) Wake()         {}

func (*trailing) Take() (data, trailers []byte, ended bool, err error) {
	return make([]byte, 30<<10), []byte("X: " + strings.Repeat("y", 20<<10) + "\r\n"), true, nil
}

// An answer arrives at once although the origin accepts neither the body nor the trailers, however long they are.
func TestAnswersBeforeLongTrailers(t *testing.T) {
	inFrozen(t, func(t *testing.T, f *frozen, s *http1.Server) {
		f.early = true
		o := http1.NewHTTP2Origin("http", f.connect, time.Hour)
		defer o.Close()
		for range 2 { // then the origin's settings are known
			var r http1.Request
			if err := r.Parse([]byte("POST /0s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			var c http1.Call
			began := time.Now()
			c.Start(passing{}, new(http1.Options), began)
			if err := c.Relay(new(trailing), &r, o); err != nil || time.Since(began) > 0 {
				t.Errorf("after %v: %v, want an answer at once", time.Since(began), err)
			}
		}
	})
}

// A fragile relay panics when it sees a trailer.
type fragile struct{ relay }

func (f fragile) Serve(c http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	return f.origin, fragileRequest{passing{c: c, r: r}}
}

type fragileRequest struct{ passing }

func (fragileRequest) KeepsTrailer([]byte) bool { panic("a trailer") }

// A panic while the rest of a request is sent ends the exchange, not the process.
func TestUploadPanics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dial := harness.Origin(reader{})
		o := http1.NewOrigin(func() (net.Conn, error) { return dial(context.Background(), "", "") }, patience)
		defer o.Close()
		client, conn := net.Pipe()
		defer client.Close()
		var log strings.Builder
		opts := options(fragile{relay{o}})
		opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		go http1.NewServer(opts).Accept(conn, http1.Start{Since: time.Now()})()
		began := time.Now()
		_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		synctest.Wait()
		go func() { _, _ = io.WriteString(client, "0\r\nX: y\r\n\r\n") }()
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || resp.StatusCode != 400 || time.Since(began) > 0 || !strings.Contains(log.String(), "a trailer") {
			t.Errorf("after %v: %+v, %v; want an error at once, and a log of the panic: %s", time.Since(began), resp, err, &log)
		}
	})
}
