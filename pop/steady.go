package pop

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

const (
	// acceptPause is how long a listener waits where a connection cannot be accepted.
	acceptPause = 50 * time.Millisecond

	// acceptSaid is how often that is said at most.
	acceptSaid = 10 * time.Second
)

// A steadyListener goes on where a connection cannot be accepted, such as for want of file
// descriptors or memory, which others give back. It says so: clients wait meanwhile.
type steadyListener struct {
	net.Listener
	logger *slog.Logger
	said   time.Time
}

// Accept returns no error but that l is closed. Only one goroutine may call it.
func (l *steadyListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		if now := time.Now(); now.Sub(l.said) >= acceptSaid {
			l.said = now
			l.logger.Error("connections cannot be accepted; it is tried again", "addr", l.Addr(), "err", err)
		}
		time.Sleep(acceptPause)
	}
}
