package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// A meter measures the CPU time that inputs cost the node.
type meter struct {
	node  *harness.Process
	addr  string
	plain [2][]cost // of plain requests over HTTP/1.1 and HTTP/2, by size
}

// A cost is the CPU time for a request of a size in bytes.
type cost struct {
	size int
	cpu  float64 // µs
}

// sizes are the sizes of plain requests that are measured. Those between them are interpolated.
var sizes = []int{60, 250, 1000, 4000, 16000, 60000}

// plainOf returns a plain request of this size: how many of them fit into a node's buffer makes a difference.
func plainOf(size int, isHTTP2 bool) input {
	in := input{http2: isHTTP2, numbered: true, path: [2]piece{{"login", 1}}}
	overhead := len("x-00: \r\n")
	if isHTTP2 {
		overhead = len("x-00") + 32
	}
	// Fields of 1000 bytes, as cookies and tokens have.
	for left := size - in.size(); left > overhead; {
		part := min(left, 1000)
		if left-part <= overhead {
			part = left
		}
		in.lines = append(in.lines, line{fmt.Sprintf("x-%02d", left%97), piece{"a", part - overhead}, 1, false})
		left -= part
	}
	return in
}

// calibrate measures plain requests.
func (m *meter) calibrate() {
	m.cost(plainOf(60, false)) // the client is refused from now on
	time.Sleep(time.Second)
	for i, isHTTP2 := range []bool{false, true} {
		for _, size := range sizes {
			in, least := plainOf(size, isHTTP2), math.Inf(1)
			for range 9 {
				if c, ok := m.cost(in); ok {
					least = min(least, c)
				}
			}
			if math.IsInf(least, 1) {
				harness.Check(fmt.Errorf("plain requests of %d bytes fail", size))
			}
			m.plain[i] = append(m.plain[i], cost{in.size(), least})
		}
		fmt.Printf("plain requests, HTTP/2 %t, size and CPU µs: %v\n", isHTTP2, m.plain[i])
	}
}

// ratio returns the cost of a request of in as a multiple of that of a plain request of its size. ok is false if it
// cannot be measured.
func (m *meter) ratio(in input) (ratio float64, ok bool) {
	c, ok := m.cost(in)
	if !ok {
		return 0, false
	}
	of := 0
	if in.http2 {
		of = 1
	}
	plain := m.plain[of]
	size := max(in.size(), plain[0].size)
	i := 1
	for i < len(plain)-1 && plain[i].size < size {
		i++
	}
	a, b := plain[i-1], plain[i]
	return c / (a.cpu + (b.cpu-a.cpu)*float64(size-a.size)/float64(b.size-a.size)), true
}

// paired returns the ratio of in more exactly, from alternate measurements of in and of a plain request of its size: the
// machine may be slower than when the plain requests were calibrated. A busy machine makes everything look costlier
// than it is, so the cheapest measurement of each is the closest.
func (m *meter) paired(in input) float64 {
	plain, least, leastPlain := plainOf(in.size(), in.http2), math.Inf(1), math.Inf(1)
	for range 9 {
		if c, ok := m.cost(plain); ok {
			leastPlain = min(leastPlain, c)
		}
		if c, ok := m.cost(in); ok {
			least = min(least, c)
		}
	}
	return least / leastPlain
}

const (
	batchBytes = 1 << 20 // sent over one connection at the most
	enough     = 15 * time.Millisecond
	patience   = 5 * time.Second
)

// cost returns the CPU time in µs for a request of in. It sends requests over connections of its own until the node has
// used enough CPU time. A connection that the node ends early is replaced; its costs count.
func (m *meter) cost(in input) (perRequest float64, ok bool) {
	n := min(max(batchBytes/in.size(), 1), 2000)
	before, sent := m.node.PreciseCPU(), 0
	for used := time.Duration(0); used < enough; used = m.node.PreciseCPU() - before {
		if !m.send(in, n) {
			return 0, false
		}
		if sent += n; sent > 100*n {
			break
		}
	}
	perRequest = (m.node.PreciseCPU() - before).Seconds() * 1e6 / float64(sent)
	return perRequest, !math.IsNaN(perRequest)
}

// send sends n requests, over more than one connection if the node ends one. It reports whether the node has read them
// all: a node that ends a connection has not, so the rest goes over the next one.
func (m *meter) send(in input, n int) bool {
	for left := n; left > 0; {
		read, ok := m.connect(in, left)
		if !ok {
			return false
		}
		left -= max(read, 1)
	}
	return true
}

// connect sends up to n requests over one connection, and returns how many the node has read.
func (m *meter) connect(in input, n int) (read int, ok bool) {
	conn, err := net.Dial("tcp", m.addr)
	harness.Check(err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var text bytes.Buffer
	if in.http2 {
		f := newFrames()
		for range n {
			f.add(&in)
		}
		text.Write(f.out.Bytes())
	} else {
		if in.proxied > 0 {
			text.WriteString("PROXY TCP6 " + strings.Repeat("f", in.proxied) + "::1 ::1 1 2\r\n")
		}
		for i := range n {
			in.appendHTTP1(&text, i)
		}
	}
	answered := make(chan int64, 1)
	go func() {
		got, _ := io.Copy(io.Discard, conn)
		answered <- got
	}()
	written, err := conn.Write(text.Bytes())
	if err == nil {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	<-answered
	return n * written / text.Len(), true
}
