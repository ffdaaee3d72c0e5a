package pop

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

const (
	// acceptPause is the pause before accept is retried.
	acceptPause = 50 * time.Millisecond

	// acceptSaid is the pause between two log lines about it.
	acceptSaid = 10 * time.Second
)

// A steadyListener retries when a connection cannot be accepted, for example because the process
// is out of file descriptors. It logs that, since clients wait meanwhile.
type steadyListener struct {
	net.Listener
	logger *slog.Logger
	said   time.Time
}

// Accept returns an error only if l is closed. Only one goroutine may call it.
func (l *steadyListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		if now := time.Now(); now.Sub(l.said) >= acceptSaid {
			l.said = now
			l.logger.Error("cannot accept connections; retrying", "addr", l.Addr(), "err", err)
		}
		time.Sleep(acceptPause)
	}
}
