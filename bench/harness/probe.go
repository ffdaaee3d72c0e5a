package harness

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Probe sends requests for a path at a rate over 32 connections, and returns the latency of each from the time
// when it was due.
func Probe(addr, path string, rate int, length time.Duration) (took []time.Duration) {
	const conns = 32
	gap := conns * time.Second / time.Duration(rate)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range conns {
		all.Go(func() {
			conn, err := net.Dial("tcp", addr)
			Check(err)
			defer conn.Close()
			responses := bufio.NewReader(conn)
			var mine []time.Duration
			begin := time.Now().Add(rand.N(gap))
			for due := begin; due.Sub(begin) < length; due = due.Add(gap) {
				time.Sleep(time.Until(due))
				_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
				Check(err)
				Check(ReadResponse(responses))
				mine = append(mine, time.Since(due))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	all.Wait()
	return took
}

// ReadResponse reads a response with a Content-Length.
func ReadResponse(r *bufio.Reader) error {
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if name, value, ok := bytes.Cut(line, []byte(": ")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
		if len(line) == 2 {
			_, err := r.Discard(length)
			return err
		}
	}
}

// Percentiles returns the median and the 99th percentile in milliseconds.
func Percentiles(took []time.Duration) (p50, p99 float64) {
	took = slices.Sorted(slices.Values(took))
	ms := func(i int) float64 { return float64(took[i]) / float64(time.Millisecond) }
	return ms(len(took) / 2), ms(len(took) * 99 / 100)
}
