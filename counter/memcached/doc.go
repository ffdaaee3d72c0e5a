// Package memcached counts in shards that are memcached servers. A [Client] exchanges batches in memcached's text
// protocol, and uses gomemcache for the rare operations, such as storing which shards are drained.
package memcached
