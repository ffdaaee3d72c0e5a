package shards

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/redis"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/pop/setting"
)

// A Client talks to a shard, whatever protocol it speaks. Its methods may be called concurrently.
type Client interface {
	async.Shard

	// Probe returns an error if the shard does not answer.
	Probe() error

	// Last returns the error of the last request to the shard. asked is false if there was none.
	Last() (asked bool, err error)

	// Unfit returns why the shard cannot be used although it answers, or nil.
	Unfit() error

	// Update replaces the value under item with the result of change; see [memcached.Client.Update].
	Update(item counter.Item, change func(old []byte) (value []byte, ttl int32)) error

	// Hide removes the shard from the metrics.
	Hide()

	// Close closes idle connections.
	Close() error
}

// An Address is the address and protocol of a shard.
type Address struct {
	name  string
	redis *redis.Address // nil for a memcached
}

// Memcached returns the address of a memcached at HOST:PORT.
func Memcached(addr string) Address { return Address{name: addr} }

// ParseAddress parses the address of a shard as operators spell it: HOST:PORT or memcached://HOST:PORT, or the URL of a
// Redis or Valkey; see [redis.ParseAddress].
func ParseAddress(text string) (Address, error) {
	scheme, rest, hasScheme := strings.Cut(text, "://")
	switch {
	case hasScheme && slices.Contains(redis.Schemes, scheme):
		addr, err := redis.ParseAddress(text, setting.ReadSecret)
		return Address{addr.Name, &addr}, err
	case strings.HasPrefix(scheme, "redis+") && hasScheme:
		return Address{}, errors.New("is a Redis Cluster or a Sentinel, which are not supported: use standalone servers " +
			"(redis://HOST:PORT) or a host name that follows the primary; the nodes distribute keys over shards themselves")
	case hasScheme && scheme == "memcached":
		text = rest
	case hasScheme:
		return Address{}, errors.New("must be HOST:PORT of a memcached, or redis:// or rediss:// and HOST:PORT of a Redis")
	}
	host, port, err := net.SplitHostPort(text)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || host == "" || wrong != nil || n == 0 {
		return Address{}, errors.New("must be HOST:PORT, or redis://HOST:PORT")
	}
	return Memcached(text), nil
}

// ParseAddresses parses the addresses of a PoP's shards, which must all speak the same protocol.
func ParseAddresses(texts []string) (all []Address, err error) {
	for _, text := range texts {
		addr, err := ParseAddress(text)
		if err != nil {
			return nil, err
		}
		switch same := func(a Address) bool { return a.name == addr.name }; {
		case slices.ContainsFunc(all, same):
			return nil, errors.New("must list each address once")
		case len(all) > 0 && (addr.redis == nil) != (all[0].redis == nil):
			return nil, errors.New("must be all memcached servers or all Redis servers: a PoP has shards of one kind")
		}
		all = append(all, addr)
	}
	return all, nil
}

// String returns the address without secrets. It determines which keys the shard owns, and is what operators see.
func (a Address) String() string { return a.name }

// connect returns a client of the shard.
func (a Address) connect(o wire.Options) Client {
	if a.redis != nil {
		return redis.New(*a.redis, o)
	}
	return memcached.New(a.name, o)
}
