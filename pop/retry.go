package pop

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/edgelimit/edge/internal/lograte"
)

// acceptPause is the pause before accept is retried.
const acceptPause = 50 * time.Millisecond

// A retryListener retries if a connection cannot be accepted, for example because the process is out of file
// descriptors. It logs such errors, because clients wait meanwhile.
type retryListener struct {
	net.Listener
	logger *slog.Logger
	failed lograte.Limiter
}

func newRetryListener(ln net.Listener, logger *slog.Logger) *retryListener {
	return &retryListener{Listener: ln, logger: logger, failed: lograte.Limiter{Every: 10 * time.Second}}
}

// Accept returns an error only if l is closed.
func (l *retryListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		l.failed.Log(l.logger, slog.LevelError, time.Now(), "cannot accept connections; retrying", "addr", l.Addr(), "err", err)
		time.Sleep(acceptPause)
	}
}
