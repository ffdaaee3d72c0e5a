package main

// Communication with the service manager: sockets that it has opened, and the node's state. The
// protocols are those of sd_listen_fds(3) and sd_notify(3).

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/edgelimit/edge/internal/complaint"
)

// firstSocket is the first file descriptor that a service manager passes.
const firstSocket = 3

// socketNames are the names that sockets can have.
var socketNames = []string{"http", "https", "metrics", "admin"}

// inherited returns the sockets that the service manager has opened for this process, by name. It
// unsets the variables that describe them, so that child processes do not use them. After an error it leaves sockets
// open, because the process ends.
func inherited() (map[string]net.Listener, error) {
	pid, number, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name) // its name is valid
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil // for another process, or not set
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("invalid LISTEN_FDS %q", number)
	}
	listeners := map[string]net.Listener{}
	given := strings.Split(names, ":")
	for i := range n {
		fd, name := firstSocket+i, ""
		if i < len(given) {
			name = given[i]
		}
		syscall.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), name)
		ln, err := net.FileListener(file)
		_ = file.Close() // ln has a copy
		switch hint := "set FileDescriptorName= in the socket unit to " + strings.Join(socketNames, ", ") + "; one socket each"; {
		case !slices.Contains(socketNames, name):
			err = complaint.WithHint(fmt.Errorf("socket %d of the service manager has the unknown name %q", fd, name), hint)
		case listeners[name] != nil:
			err = complaint.WithHint(fmt.Errorf("the service manager has two sockets named %q", name), hint)
		case err != nil:
			err = complaint.WithHint(fmt.Errorf("socket %q of the service manager: %w", name, err), "use a stream socket that listens: ListenStream=")
		}
		if err != nil {
			return nil, err
		}
		listeners[name] = ln
	}
	return listeners, nil
}

// notify sends the state of this process to the service manager, if it expects that.
func notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"}) // @ begins an abstract name
	if err != nil {
		return fmt.Errorf("notifying the service manager: %w", err)
	}
	_, err = conn.Write([]byte(state))
	return errors.Join(err, conn.Close())
}
