package shard

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"strconv"
	"testing"
	"time"
)

// check fails the test unless the stripe is consistent.
func (s *stripe) check(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	items, blocks := 0, 0
	var newer uint32
	for i := s.newest; i != 0; i = s.at(i).u32(fieldOlder) {
		b := s.at(i)
		if items++; items > s.items {
			t.Fatalf("the list has more than %d items", s.items)
		}
		if !b.isHead() {
			t.Fatalf("block %d is in the list and no head", i)
		}
		if got := b.u32(fieldNewer); got != newer {
			t.Fatalf("block %d has %d before it, want %d", i, got, newer)
		}
		newer = i
		key := s.appendBytes(nil, i, 0, b.keyLen())
		if found := s.lookUp(maphash.Bytes(s.seed, key), key); found != i {
			t.Fatalf("key %q leads to block %d, want %d", key, found, i)
		}
		n := 1
		for j := b.chain(); j != 0; j = s.at(j).chain() {
			if s.at(j).isHead() {
				t.Fatalf("block %d is a head in the chain of %d", j, i)
			}
			n++
		}
		if n != b.size() {
			t.Fatalf("item %d has %d blocks, want %d", i, n, b.size())
		}
		blocks += n
	}
	if items != s.items || newer != s.oldest {
		t.Fatalf("the list has %d items and ends with %d, want %d and %d", items, newer, s.items, s.oldest)
	}
	free := 0
	for i := s.free; i != 0 && free <= s.opened; i = s.at(i).chain() {
		free++
	}
	if blocks != s.used || free != s.opened-s.used || s.opened > s.limit {
		t.Fatalf("%d blocks are used and %d free, want %d and %d of %d, at most %d",
			blocks, free, s.used, s.opened-s.used, s.opened, s.limit)
	}
}

func (st *store) check(t testing.TB) {
	t.Helper()
	for i := range st.stripes {
		st.stripes[i].check(t)
	}
}

// script is a connection whose client has sent in, which arrives in pieces of size
// bytes. It keeps the replies.
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
		"add k 0 100 1 noreply\r\n9\r\nincr k 1\r\ndecr k 5\r\ntouch k -1\r\n",
		"set k 0 0 100\r\nabc", "set k 0 0 -1\r\n", "set k 0 0 99999999\r\nabc\r\n",
		"replace k 0 0 1\r\na\r\ndelete k 0 noreply\r\n",
		"flush_all 10\r\nflush_all noreply\r\nstats\r\nstats items\r\nverbosity 1\r\nversion\r\nquit\r\n",
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

func answer(t *testing.T, in []byte, size int) []byte {
	s, err := New(Options{MaxBytes: minMaxBytes, MaxItemSize: minMaxItemSize})
	if err != nil {
		t.Fatal(err)
	}
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
	f.Add(bytes.Repeat([]byte("i\x01\xffi\x01\x01-\x01\x30s\x01\x01f\x00\x00"), 5))
	f.Fuzz(func(t *testing.T, ops []byte) {
		start := time.Now()
		st := newStore(minMaxBytes, minMaxItemSize, start)
		now := st.clock(start)
		model := make(map[string]string)
		for ; len(ops) >= 3; ops = ops[3:] {
			// Keys and values of all lengths, to end in any block.
			key := bytes.Repeat([]byte{'k'}, 1+int(ops[1])%maxKey)
			value := bytes.Repeat([]byte{'0' + ops[2]%10}, int(ops[2])*3)
			u := update{key: key}
			switch ops[0] {
			case 's':
				st.update(u, value, now)
				model[string(key)] = string(value)
			case 'i', '-':
				v, problem := st.add(key, uint64(ops[2])<<40, ops[0] == '-', now)
				old := model[string(key)]
				if n, err := strconv.ParseUint(old, 10, 64); problem == "" && err == nil {
					want := n + uint64(ops[2])<<40
					if ops[0] == '-' {
						want = n - min(n, uint64(ops[2])<<40)
					}
					if v != want {
						t.Fatalf("%c %s by %d<<40: got %d, want %d", ops[0], old, ops[2], v, want)
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

// Commands on existing keys allocate nothing.
func TestCommandsDoNotAllocate(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{server: s, store: s.store}
	c.in.buf = c.in.first[:]
	now := time.Now()
	run := func(line, data string) string {
		c.out = c.out[:0]
		c.in.r, c.in.w = 0, copy(c.in.buf, data)
		c.exec([]byte(line), now)
		return string(c.out)
	}
	run("set key-of-16-bytes! 0 0 1", "1\r\n")
	for _, line := range []struct{ line, data, want string }{
		{"get key-of-16-bytes!", "", ""},
		{"gets key-of-16-bytes! nothing key-of-16-bytes!", "", ""},
		{"incr key-of-16-bytes! 1000000", "", ""},
		{"incr key-of-16-bytes! 1 noreply", "", ""},
		{"decr key-of-16-bytes! 1", "", ""},
		{"touch key-of-16-bytes! 100", "", "TOUCHED\r\n"},
		{"set key-of-16-bytes! 0 100 3", "100\r\n", "STORED\r\n"},
		{"add key-of-16-bytes! 0 100 3", "100\r\n", "NOT_STORED\r\n"},
		{"cas key-of-16-bytes! 0 100 3 1", "100\r\n", "EXISTS\r\n"},
	} {
		if got := run(line.line, line.data); line.want != "" && got != line.want {
			t.Fatalf("%s: got %q, want %q", line.line, got, line.want)
		}
		text := []byte(line.line)
		if n := testing.AllocsPerRun(200, func() {
			c.out = c.out[:0]
			c.in.r, c.in.w = 0, copy(c.in.buf, line.data)
			c.exec(text, now)
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", line.line, n)
		}
	}
	// New keys allocate pages and tables, but far less than one allocation per key.
	line := []byte("set 0000000000000000 0 100 1")
	i := 0
	if n := testing.AllocsPerRun(10_000, func() {
		i++
		strconv.AppendInt(line[4:4], int64(1e15+i), 10)
		c.out = c.out[:0]
		c.in.r, c.in.w = 0, copy(c.in.buf, "1\r\n")
		c.exec(line, now)
	}); n != 0 {
		t.Errorf("set of a new key: %v allocations, want less than 1", n)
	}
	if got := s.snapshot().items; got < 10_000 {
		t.Errorf("there are %d items, want more than 10000", got)
	}
}
