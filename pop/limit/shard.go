package limit

// A Shard owns part of a PoP's counters, and the records beside them. It is a
// [counter.Shard], or behaves like one. Its methods may be called concurrently.
type Shard interface {
	// Addr names the shard. Every node names it alike, since it places keys.
	Addr() string

	// Down reports whether the shard is left alone but for a probe now and then, since it
	// failed. The request path calls it: it must not wait.
	Down() bool

	// Available reports whether the shard would be asked now.
	Available() bool

	// Probe asks for nothing in particular, to find out whether the shard answers.
	Probe() error

	// Count adds delta to the counter under key, which is made with a time to live in
	// seconds if it does not exist, and returns its new number. Its errors are
	// [counter.ErrNotSent] and [counter.ErrUnknown].
	Count(key string, delta uint64, ttl int32) (number uint64, err error)

	// Numbers reads the counters and records under keys. What does not exist is missing.
	Numbers(keys ...string) (values map[string][]byte, err error)

	// Update replaces the value under key by what change makes of it: of nil if there is
	// none, and into nil to leave it.
	Update(key string, change func(old []byte) (value []byte, ttl int32)) error

	// Delete removes what is under keys.
	Delete(keys ...string) error
}
