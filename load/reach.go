package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// reachWithin is how long Run tries to connect to any of its targets before it gives up.
const reachWithin = 3 * time.Second

// reach returns once any target has accepted a connection, which it closes. It retries while no
// target listens, because a PoP that is started together with the run may need a moment.
func (r *run) reach() error {
	ctx, cancel := context.WithTimeout(r.caller, reachWithin)
	defer cancel()
	errs := make([]error, len(r.o.Targets))
	var wg sync.WaitGroup
	for i := range r.o.Targets {
		wg.Go(func() {
			if errs[i] = r.reachOne(ctx, &r.o.Targets[i]); errs[i] == nil {
				cancel()
			}
		})
	}
	wg.Wait()
	if slices.Contains(errs, nil) || r.caller.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// reachOne connects to a target. It retries until ctx is done, unless that is futile.
func (r *run) reachOne(ctx context.Context, t *Target) error {
	for {
		err := r.try(ctx, t)
		if err != nil {
			err = fmt.Errorf("load: cannot connect to %s: %w", t.Name, err)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// try opens a connection to a target and closes it.
func (r *run) try(ctx context.Context, t *Target) error {
	if r.o.HTTP3 {
		qc, err := r.dialHTTP3(ctx, t, nil)
		if err == nil {
			err = qc.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
		}
		return err
	}
	nc, err := r.dial(ctx, t, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	if err == nil {
		nc.Close()
	}
	return err
}
