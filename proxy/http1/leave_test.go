package http1_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/http1"
)

// A departing relay takes some time to note that its client has left.
type departing struct {
	plain
	leaving chan struct{}
	noted   atomic.Bool
}

func (*departing) Relayed(error) {}

func (d *departing) Gone(func()) bool {
	close(d.leaving)
	<-time.After(50 * time.Millisecond) // the answer arrives
	d.noted.Store(true)
	return true
}

// A bodiless client has sent a request without a body, and gets its answer.
type bodiless struct{ http1.Client }

func (bodiless) Take() (data, trailers []byte, ended bool, err error) { return nil, nil, true, nil }
func (bodiless) Flush() error                                         { return nil }
func (bodiless) Watch(*http1.Call) (stop func())                      { return nil }
func (bodiless) Begin(*http1.Answer, []byte, bool) error              { return nil }
func (bodiless) Send([]byte, bool, []byte) error                      { return nil }

// An exchange does not end while another goroutine notes that the client has left.
func TestAnswerWhileClientLeaves(t *testing.T) {
	d := &departing{leaving: make(chan struct{})}
	back := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-d.leaving }))
	defer back.Close()
	o := http1.NewOrigin(dialer(back.Listener.Addr().String()), patience)
	defer o.Close()
	var r http1.Request
	if err := r.Parse([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	var c http1.Call
	c.Start(d, new(http1.Options), time.Now())
	go c.Leave()
	if err := c.Relay(bodiless{}, &r, o); err != nil || !d.noted.Load() {
		t.Errorf("Relay = %v; the departure is noted: %t", err, d.noted.Load())
	}
}

// An origin has only its timeout to begin the final answer, even if it sends something all the time. That does not
// include the time to connect.
func TestAnswersThatDoNotBegin(t *testing.T) {
	const connecting = 30 * time.Second
	for _, test := range []struct{ name, first, next string }{
		{"interim answers", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n"},
		{"a head without an end", "HTTP/1.1 200 OK\r\n", "X: y\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				o := http1.NewOrigin(func() (net.Conn, error) {
					time.Sleep(connecting)
					near, far := net.Pipe()
					go func() {
						_, _ = http.ReadRequest(bufio.NewReader(far))
						_, err := io.WriteString(far, test.first)
						for err == nil {
							time.Sleep(100 * time.Millisecond)
							_, err = io.WriteString(far, test.next)
						}
					}()
					return near, nil
				}, time.Minute)
				var r http1.Request
				if err := r.Parse([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
					t.Fatal(err)
				}
				var c http1.Call
				began := time.Now()
				c.Start(new(departing), new(http1.Options), began)
				err := c.Relay(bodiless{}, &r, o)
				if took := time.Since(began); !http1.IsTimeout(err) || took != connecting+time.Minute {
					t.Errorf("after %v: %v, want a timeout a minute after connecting", took, err)
				}
				time.Sleep(time.Second) // the origin ends
			})
		})
	}
}

// A slow client sends nothing of its body for a second, and then fails.
type slow struct {
	bodiless
	patience []time.Duration // of each call of Await
}

func (*slow) Take() (data, trailers []byte, ended bool, err error) { return nil, nil, false, nil }
func (*slow) Arrived() bool                                        { return false }
func (*slow) Wake()                                                {}

func (s *slow) Await(by time.Time, _ *atomic.Bool) (int, error) {
	s.patience = append(s.patience, time.Until(by))
	time.Sleep(time.Second)
	return 0, io.ErrUnexpectedEOF
}

// What a client has done in one exchange does not count in the next one of the same Call, which may be another client's.
func TestExchangesAreIndependent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var c http1.Call
		relay := func(client http1.Client, head string, o *http1.Origin) (relayed *http1.RelayError) {
			var r http1.Request
			if err := r.Parse([]byte(head)); err != nil {
				t.Fatal(err)
			}
			c.Start(passing{}, &http1.Options{Limits: http1.Limits{BodyTimeout: 5 * time.Second, BodyRate: 100}}, time.Now())
			relayed, _ = errors.AsType[*http1.RelayError](c.Relay(client, &r, o))
			return relayed
		}
		silent := http1.NewOrigin(func() (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			return near, nil
		}, time.Minute)
		s := new(slow)
		for range 2 {
			if err := relay(s, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", silent); err == nil || !err.Client {
				t.Errorf("an incomplete body: %v, want an error of the client", err)
			}
		}
		if got, want := fmt.Sprint(s.patience), "[5s 5s]"; got != want {
			t.Errorf("a client that was slow before may pause for %s, want %s", got, want)
		}
		down := http1.NewOrigin(func() (net.Conn, error) { return nil, errors.New("connection refused") }, time.Minute)
		if err := relay(bodiless{}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", down); err == nil || err.Client {
			t.Errorf("an origin that is down: %v, want an error of the origin", err)
		}
	})
}
