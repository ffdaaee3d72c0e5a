package shard

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// check fails the test unless the stripe is consistent.
func (s *stripe) check(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	live, size, at := 0, 0, s.log.tail
	for size < s.log.used() {
		if s.log.head < s.log.tail && at == s.log.end {
			at = 0
		}
		it := s.log.item(at)
		if to, ok := s.index[it.hash()[0]]; ok && int(to) == at {
			live++
		}
		size += roomFor(len(it.value()))
		at += roomFor(len(it.value()))
	}
	if live != len(s.index) || size != s.log.used() || at != s.log.head {
		t.Fatalf("%d of %d items in the index; the log of %d bytes ends at %d after %d: %+v", live, len(s.index), s.log.used(), at, size, s.log.end)
	}
	if len(s.log.bytes) > s.log.max || s.log.used() > s.log.max {
		t.Fatalf("the log uses %d of %d bytes, want at most %d", s.log.used(), len(s.log.bytes), s.log.max)
	}
}

func (st *store) check(t testing.TB) {
	t.Helper()
	for i := range st.stripes {
		st.stripes[i].check(t)
	}
}

// script is a connection from which in is read, in pieces of size bytes. It keeps
// the replies.
type script struct {
	net.Conn
	in   []byte
	size int
	out  bytes.Buffer
}

func (c *script) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.in[:min(c.size, len(c.in))])
	c.in = c.in[n:]
	return n, nil
}

func (c *script) Write(b []byte) (int, error)      { return c.out.Write(b) }
func (c *script) Close() error                     { return nil }
func (c *script) SetReadDeadline(time.Time) error  { return nil }
func (c *script) SetWriteDeadline(time.Time) error { return nil }

// FuzzConn sends arbitrary bytes. The connection ends, the store stays consistent, and
// the replies do not depend on how the bytes are divided.
func FuzzConn(f *testing.F) {
	for _, seed := range []string{
		"get k\r\n",
		"set k 1 0 3\r\nabc\r\ngets k k\r\ncas k 0 0 1 1\r\nx\r\n",
		"add k 0 100 1 noreply\r\n9\r\nincr k 1\r\n",
		"set k 0 0 100\r\nabc", "set k 0 0 -1\r\n", "set k 0 0 99999999\r\nabc\r\n",
		"delete k 0 noreply\r\n",
		"flush_all 10\r\nflush_all noreply\r\nstats\r\nstats items\r\nversion\r\nquit\r\n",
		"GET / HTTP/1.1\r\n", "\x80\x01\x00\x00", "\r\n\n\x00\r\n", "get \x00\r\n",
		"set k 0 0 700\r\n" + string(make([]byte, 700)) + "\r\nset k 0 0 7\r\n" + string(make([]byte, 7)) + "\r\nget k\r\n",
		"get " + string(bytes.Repeat([]byte("k "), 2000)) + "\r\n",
		string(bytes.Repeat([]byte("x"), 3000)) + "\r\n",
		string(bytes.Repeat([]byte("set k 0 0 1\r\n1\r\nincr k 1\r\n"), 100)),
	} {
		f.Add([]byte(seed), uint16(7))
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint16) {
		whole := answer(t, in, len(in)+1)
		pieces := answer(t, in, int(size)+1)
		if !bytes.Contains(in, []byte("stats")) && !bytes.Equal(whole, pieces) {
			t.Errorf("%q in one piece: %q; in pieces of %d: %q", in, whole, size+1, pieces)
		}
	})
}

// smallest is the size of a small store, in bytes.
const smallest = 64 << 10

func answer(t *testing.T, in []byte, size int) []byte {
	s := New(Options{MaxBytes: smallest})
	nc := &script{in: in, size: size}
	s.ServeConn(t.Context(), nc)
	s.store.check(t)
	return nc.out.Bytes()
}

// FuzzStore compares a small store, in which items are evicted, with a map.
// Each operation is three bytes.
func FuzzStore(f *testing.F) {
	f.Add([]byte("s\x01\x01g\x01\x00i\x01\xffd\x01\x00"))
	f.Add(bytes.Repeat([]byte("s\x01\xf0s\x02\xf0s\x01\x30g\x01\x00s\x02\x30g\x02\x00"), 20))
	f.Add(bytes.Repeat([]byte("i\x01\xffi\x01\x01s\x01\x01f\x00\x00"), 5))
	random, many := rand.New(rand.NewPCG(1, 2)), []byte(nil)
	for range 20_000 {
		many = append(many, "sssiiigg"[random.IntN(8)], byte(random.Uint32()), byte(random.Uint32()))
	}
	f.Add(many)
	f.Fuzz(func(t *testing.T, ops []byte) {
		start := time.Now()
		st := newStore(smallest, start)
		now := st.clock(start)
		model := make(map[string]string)
		for ; len(ops) >= 3; ops = ops[3:] {
			// Keys and values of many lengths.
			key := bytes.Repeat([]byte{'k'}, 1+int(ops[1])%maxKey)
			value := bytes.Repeat([]byte{'0' + ops[2]%10}, int(ops[2])*3)
			switch ops[0] {
			case 's':
				st.set("set", key, meta{}, value, now)
				model[string(key)] = string(value)
			case 'i':
				v, problem := st.incr(key, uint64(ops[2])<<40, now)
				old := model[string(key)]
				if n, err := strconv.ParseUint(old, 10, 64); problem == "" && err == nil {
					if want := n + uint64(ops[2])<<40; v != want {
						t.Fatalf("%s by %d<<40: got %d, want %d", old, ops[2], v, want)
					}
				}
				if problem == "" {
					model[string(key)] = fmt.Sprintf("%-*d", len(old), v)
				}
			case 'd':
				st.delete(key, now)
				delete(model, string(key))
			case 'f':
				st.flush()
				clear(model)
			default:
				want, ok := model[string(key)]
				got := st.get(nil, key, false, now)
				reply := fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\n", key, len(want), want)
				if len(got) > 0 && (!ok || string(got) != reply) {
					t.Fatalf("get %s: got %q, want %q or nothing", key, got, reply)
				}
			}
		}
		st.check(t)
	})
}

// Keys whose hashes are equal in one half have items of their own, or none.
func TestHalfACollision(t *testing.T) {
	start := time.Now()
	st := newStore(smallest, start)
	now, s := st.clock(start), &st.stripes[0]
	s.put(hash{1, 2}, meta{}, []byte("7"), now)
	if s.find(hash{1, 2}, now) == nil || s.find(hash{1, 3}, now) != nil {
		t.Error("an item is missing, or another key has it")
	}
}

// However many items have expired, a command does a bounded amount of work later.
func TestMovesAreBounded(t *testing.T) {
	start := time.Now()
	st := newStore(smallest, start)
	for i := range 5000 {
		st.set("set", strconv.AppendInt(nil, int64(i), 10), meta{deadline: longAgo}, nil, st.clock(start))
	}
	if got := st.stripes[0].moves; got != maxMoves {
		t.Errorf("up to %d items may move, want %d", got, maxMoves)
	}
}

// The replies to a command that reads a long value again and again take little memory.
func TestRepliesAreBounded(t *testing.T) {
	c := &conn{Server: New(Options{}), net: new(script)}
	now := c.store.clock(time.Now())
	c.store.set("set", []byte("k"), meta{}, make([]byte, 10_000), now)
	if c.execute([]byte("get"+strings.Repeat(" k", 1000)), now); cap(c.out) > 8*flushSize {
		t.Errorf("%d bytes are kept for replies", cap(c.out))
	}
}

// Commands on existing keys allocate nothing.
func TestCommandsDoNotAllocate(t *testing.T) {
	s := New(Options{})
	in := &script{size: 1 << 10}
	c := &conn{Server: s, net: in}
	c.in = bufio.NewReaderSize(c, maxLine)
	now := s.store.clock(time.Now())
	run := func(line, data []byte) {
		c.out = c.out[:0]
		in.in = data
		c.execute(line, now)
	}
	run([]byte("set key-of-16-bytes! 0 0 1"), []byte("1\r\n"))
	for _, line := range []struct{ line, data, want string }{
		{"get key-of-16-bytes!", "", ""},
		{"gets key-of-16-bytes! nothing key-of-16-bytes!", "", ""},
		{"incr key-of-16-bytes! 1000000", "", ""},
		{"incr key-of-16-bytes! 1 noreply", "", ""},
		{"set key-of-16-bytes! 0 100 3", "100\r\n", "STORED\r\n"},
		{"add key-of-16-bytes! 0 100 3", "100\r\n", "NOT_STORED\r\n"},
		{"cas key-of-16-bytes! 0 100 3 1", "100\r\n", "EXISTS\r\n"},
	} {
		text, data := []byte(line.line), []byte(line.data)
		if run(text, data); line.want != "" && string(c.out) != line.want {
			t.Fatalf("%s: got %q, want %q", line.line, c.out, line.want)
		}
		if n := testing.AllocsPerRun(200, func() { run(text, data) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", line.line, n)
		}
	}
	// New keys grow the log and the index, with far less than one allocation per key.
	line, data := []byte("set 0000000000000000 0 100 1"), []byte("1\r\n")
	i := 0
	if n := testing.AllocsPerRun(10_000, func() {
		i++
		strconv.AppendInt(line[4:4], int64(1e15+i), 10)
		run(line, data)
	}); n != 0 {
		t.Errorf("set of a new key: %v allocations, want less than 1", n)
	}
	if got := s.snapshot().items; got < 10_000 {
		t.Errorf("there are %d items, want more than 10000", got)
	}
}
