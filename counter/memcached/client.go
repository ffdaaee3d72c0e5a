package memcached

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/wire"
)

// A Client talks to one shard, a memcached that owns part of a PoP's counters. It is safe for
// concurrent use. Its methods block for a round trip, so the request path must not call them.
type Client struct {
	*wire.Client
	rare *memcache.Client // for Update
}

// An address is the shard's host:port. It is a server list for gomemcache with one server.
type address string

func (a address) Network() string                       { return "tcp" }
func (a address) String() string                        { return string(a) }
func (a address) PickServer(string) (net.Addr, error)   { return a, nil }
func (a address) Each(visit func(net.Addr) error) error { return visit(a) }

// New returns a client for the shard at addr, host:port. It connects on first use. Close
// closes idle connections.
func New(addr string, o wire.Options) *Client {
	s := &Client{wire.New(addr, o, func() wire.Protocol { return protocol{} }), memcache.NewFromSelector(address(addr))}
	s.rare.Timeout, s.rare.MaxIdleConns = s.Timeout, 1
	s.rare.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := s.Dial(ctx, network, addr)
		if err != nil {
			return nil, dialError{err}
		}
		return &boundedConn{Conn: conn}, nil
	}
	return s
}

// dialError marks a failed dial: nothing was sent.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// Close closes idle connections. The Client may still be used.
func (s *Client) Close() error { return errors.Join(s.Client.Close(), s.rare.Close()) }

// Update replaces the value under item with the result of change, in at most three tries if
// others write it at the same time. old is nil if there is no value. change returns the new
// value and its time to live in seconds, or nil to keep the old one.
func (s *Client) Update(item counter.Item, change func(old []byte) (value []byte, ttl int32)) error {
	for range 3 {
		var old *memcache.Item
		err := s.do("get", func() (err error) {
			old, err = s.rare.Get(item.String())
			return err
		})
		if err == memcache.ErrCacheMiss {
			old, err = &memcache.Item{Key: item.String()}, nil
		}
		if err != nil {
			return err
		}
		value, ttl := change(old.Value)
		if value == nil {
			return nil
		}
		write, op := s.rare.CompareAndSwap, "cas"
		if old.Value == nil {
			write, op = s.rare.Add, "add"
		}
		old.Value, old.Expiration = value, ttl
		switch err := s.do(op, func() error { return write(old) }); err {
		case memcache.ErrCASConflict, memcache.ErrNotStored, memcache.ErrCacheMiss:
		default:
			return err
		}
	}
	return fmt.Errorf("%w: other nodes keep writing the record on %s", counter.ErrUnknown, s.Addr())
}

// do runs one round trip of gomemcache. It returns errors that are answers of the shard unchanged.
func (s *Client) do(op string, roundTrip func() error) error {
	return s.Do(op, func() (answered bool, err error) {
		defer func() {
			// gomemcache panics on truncated replies.
			if r := recover(); r != nil {
				s.Metrics.Malformed()
				err = fmt.Errorf("%w: malformed reply from %s: %v", counter.ErrUnknown, s.Addr(), r)
			}
		}()
		switch err = roundTrip(); err {
		case nil, memcache.ErrCacheMiss, memcache.ErrNotStored, memcache.ErrCASConflict:
			return true, err
		}
		var dial dialError
		if errors.As(err, &dial) {
			return false, fmt.Errorf("%w: connecting to %s: %w", counter.ErrNotSent, s.Addr(), dial.error)
		}
		_ = s.Close() // the other idle connections are probably dead, too, and each would lose a batch
		return false, fmt.Errorf("%w: %s on %s: %w", counter.ErrUnknown, op, s.Addr(), err)
	})
}
