package pop

import (
	"context"
	"net/http"
	"sync"
)

// upgrades counts upgraded connections, such as WebSockets, which their server no longer tracks.
type upgrades struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n becomes 0; nil if nobody waits
}

// follow returns a handler that passes requests to next, and counts those that ask for an upgrade while they
// last.
func (u *upgrades) follow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, upgrade := r.Header["Upgrade"]; upgrade {
			u.add(1)
			defer u.add(-1)
		}
		next.ServeHTTP(w, r)
	})
}

func (u *upgrades) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n += n; u.n == 0 && u.none != nil {
		close(u.none)
		u.none = nil
	}
}

// wait waits until no upgrades are left or ctx is done, and returns how many are left. It must be called once.
func (u *upgrades) wait(ctx context.Context) (left int) {
	u.mu.Lock()
	none := make(chan struct{})
	if u.n == 0 {
		close(none)
	} else {
		u.none = none
	}
	u.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}
