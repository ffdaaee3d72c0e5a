package http1_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

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
	c.Start(d, new(http1.Limits), time.Now())
	go c.Leave()
	if err := c.Relay(bodiless{}, &r, o); err != nil || !d.noted.Load() {
		t.Errorf("Relay = %v; the departure is noted: %t", err, d.noted.Load())
	}
}
