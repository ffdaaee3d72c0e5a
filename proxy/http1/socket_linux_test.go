package http1_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/proxy/http1"
)

// sockets returns both ends of a connection.
func sockets(t *testing.T) (*http1.Socket, net.Conn) {
	t.Helper()
	ln := listen(t)
	far := dial(t, ln.Addr().String())
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := http1.NewSocket(near).(*http1.Socket)
	t.Cleanup(func() { _ = s.Close() })
	return s, far
}

// descriptors returns the number of file descriptors that refer to s.
func descriptors(t *testing.T, s *http1.Socket) (n int) {
	t.Helper()
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	is := func(name string) string { link, _ := os.Readlink("/proc/self/fd/" + name); return link }
	var own string
	_ = raw.Control(func(fd uintptr) { own = is(strconv.Itoa(int(fd))) })
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil || own == "" {
		t.Fatal(own, err)
	}
	for _, f := range files {
		if is(f.Name()) == own {
			n++
		}
	}
	return n
}

// A socket outside of Go's poller is still the same connection, and returns to the poller when a goroutine waits for it.
// Control works all the time.
func TestSocketOutsideOfThePoller(t *testing.T) {
	s, far := sockets(t)
	local, remote := s.LocalAddr().String(), s.RemoteAddr().String()
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); others.Wait() })
	defer end()
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := raw.Control(func(fd uintptr) {
				if _, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Error(err)
			}
		}
	})
	buf := make([]byte, 5)
	for range 100 {
		s.Detach()
		s.Detach() // has no effect
		var err error
		_ = raw.Control(func(fd uintptr) { _, err = syscall.Write(int(fd), []byte("hello")) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("%q, %v", buf, err)
		}
		if _, err := far.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("%q, %v", buf, err)
		}
		_ = s.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := s.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a read without data returns %v", err)
		}
		_ = s.SetReadDeadline(time.Time{})
	}
	end()
	if n := descriptors(t, s); n != 1 || s.LocalAddr().String() != local || s.RemoteAddr().String() != remote {
		t.Errorf("at the end, the process has %d descriptors of it, want 1; it connects %v to %v", n, s.LocalAddr(), s.RemoteAddr())
	}
	s.Detach()
	if n := descriptors(t, s); n != 1 {
		t.Errorf("outside of the poller, the process has %d descriptors of it, want 1", n)
	}
	if err := s.CloseWrite(); err != nil {
		t.Error(err)
	}
	if n, err := far.Read(buf); err != io.EOF {
		t.Errorf("after CloseWrite, the peer reads %d bytes, %v", n, err)
	}
}

// Close works in and outside of the poller, and is final.
func TestCloseSocket(t *testing.T) {
	for _, outside := range []bool{false, true} {
		s, far := sockets(t)
		if outside {
			s.Detach()
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		raw, _ := s.SyscallConn()
		if raw.Control(func(uintptr) {}) == nil {
			t.Errorf("outside of the poller: %v: Control works after Close", outside)
		}
		s.Detach()
		if n, err := s.Read(make([]byte, 1)); err == nil {
			t.Errorf("outside of the poller: %v: %d bytes are read after Close", outside, n)
		}
		if n, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("outside of the poller: %v: the peer reads %d bytes, %v", outside, n, err)
		}
	}
}

// When the process is out of file descriptors, a socket stays in the poller. If it cannot return there, it is closed.
func TestSocketsWithoutDescriptors(t *testing.T) {
	stays, far := sockets(t)
	goes, left := sockets(t)
	goes.Detach()
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	none := syscall.Rlimit{Cur: 0, Max: files.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	stays.Detach()
	_, err := goes.Read(make([]byte, 1))
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Error("a socket without a descriptor can be read")
	}
	if n, err := left.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("its peer reads %d bytes, %v", n, err)
	}
	if _, err := stays.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if n, err := far.Read(make([]byte, 1)); n != 1 {
		t.Errorf("the peer of the other socket reads %d bytes, %v", n, err)
	}
}
