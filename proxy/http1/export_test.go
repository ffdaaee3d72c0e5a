package http1

import "time"

// Stall makes the request older by d, as if the machine had stalled.
func (c *Conn) Stall(d time.Duration) { c.now = c.clock().Add(-d) }

// Scan reads a head and returns its length in bytes, or 0 if it is incomplete.
func (r *Request) Scan(buf []byte, maxBytes int) (n int, err error) {
	r.reset()
	done, err := r.scan(buf, maxBytes)
	if !done || err != nil {
		return 0, err
	}
	return r.start + len(r.raw), nil
}

// ScanBytewise reads a head that arrives byte by byte.
func (r *Request) ScanBytewise(buf []byte, maxBytes int) (n int, err error) {
	r.reset()
	for n := range len(buf) + 1 {
		if done, err := r.scan(buf[:n:n], maxBytes); done || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// Scan reads the head of an answer to a request with method.
func (a *Answer) Scan(buf []byte, method string) (n int, err error) {
	a.reset()
	done, err := a.scan(buf, method == "HEAD")
	if !done || err != nil {
		return 0, err
	}
	return len(a.raw), nil
}

// Dechunk reads a chunked body that arrives in pieces of size bytes.
func Dechunk(b []byte, size int) (data []byte, used int, trailers string, ended bool, err error) {
	r := bodyReader{kind: Chunked}
	for end := 0; !r.ended; {
		d, n, err := r.next(b[used:end])
		if err != nil {
			return data, used, "", false, err
		}
		data = append(data, d...)
		if used += n; n > 0 || r.ended {
			continue
		}
		if end == len(b) {
			break
		}
		end = min(end+size, len(b))
	}
	return data, used, string(r.trailers), r.ended, nil
}

// NamesOf returns the field names that the engine knows, each with the one that nameOf finds for it.
func NamesOf() map[string]string {
	m := map[string]string{}
	for n := Other + 1; n < names; n++ {
		m[fieldNames[n]] = fieldNames[nameOf([]byte(fieldNames[n]))]
	}
	return m
}
