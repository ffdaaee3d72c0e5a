package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reachWithin is how long Run tries to connect to any of its targets before it gives up.
const reachWithin = 3 * time.Second

// An UnreachableError reports why Run could not connect to a target, and so sent nothing.
type UnreachableError struct {
	Target string // host:port, as it was given
	err    error
}

func (e *UnreachableError) Unwrap() error { return e.err }

func (e *UnreachableError) Error() string {
	text, _ := e.explain()
	return "load: " + text
}

// Hint returns advice on how to fix the error.
func (e *UnreachableError) Hint() string {
	_, hint := e.explain()
	return hint
}

func (e *UnreachableError) explain() (text, hint string) {
	switch {
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at %s: connection refused for %v", e.Target, reachWithin), "start the target first, or check its port"
	case errors.Is(e.err, context.DeadlineExceeded):
		return fmt.Sprintf("cannot connect to %s within %v", e.Target, reachWithin), "check the address, and whether a firewall drops connections to it"
	case errors.As(e.err, new(tls.RecordHeaderError)):
		return fmt.Sprintf("%s does not speak TLS: %v", e.Target, e.err), "write http:// instead of https://"
	case isCertificate(e.err):
		return fmt.Sprintf("cannot trust %s: %v", e.Target, e.err), "--ca FILE trusts the authority that signed it, --insecure any certificate"
	case strings.Contains(e.err.Error(), "no application protocol"): // an alert, which has no type
		return e.Target + " does not speak HTTP/2", "leave out --http2"
	}
	return fmt.Sprintf("cannot connect to %s: %v", e.Target, e.err), ""
}

func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification) || errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.UnknownAuthorityError))
}

// reach returns once any target has accepted a connection, which it closes. It retries while no
// target listens, because a PoP that is started together with the run may need a moment.
func (r *run) reach() error {
	ctx, cancel := context.WithTimeout(r.caller, reachWithin)
	defer cancel()
	errs := make([]error, len(r.o.Targets))
	var reached sync.Once
	var wg sync.WaitGroup
	ok := false
	for i := range r.o.Targets {
		wg.Go(func() {
			t := &r.o.Targets[i]
			nc, err := r.reachOne(ctx, t)
			if err != nil {
				errs[i] = &UnreachableError{t.Name, err}
				return
			}
			nc.Close()
			reached.Do(func() {
				ok = true
				cancel()
			})
		})
	}
	wg.Wait()
	if ok || r.caller.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// reachOne connects to a target. It retries until ctx is done, unless that is futile.
func (r *run) reachOne(ctx context.Context, t *Target) (net.Conn, error) {
	var refused error
	for {
		nc, err := r.dial(ctx, t, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			refused = err
		case err != nil && refused != nil && ctx.Err() != nil:
			return nil, refused
		default:
			return nc, err
		}
		select {
		case <-ctx.Done():
			return nil, refused
		case <-time.After(100 * time.Millisecond):
		}
	}
}
