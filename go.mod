module github.com/edgelimit/edge

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // quantiles of latencies in edge load
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c // records and statistics of memcached shards
	github.com/buraksezer/consistent v1.0.0 // exactly: placement differs between versions
	github.com/cespare/xxhash/v2 v2.3.0 // ring placement
	github.com/dchest/siphash v1.2.3 // keys that clients cannot make collide
	github.com/gaissmai/bart v0.30.0 // longest matching network of an address
	github.com/hashicorp/golang-lru/v2 v2.0.7 // the mitigation table
	github.com/hashicorp/memberlist v0.7.0 // which nodes are in the PoP, and their packets
	github.com/klauspost/compress v1.20.3 // logs in zstd
	github.com/pires/go-proxyproto v0.15.0 // the PROXY protocol
	github.com/prometheus/client_golang v1.25.0 // metrics
	github.com/prometheus/client_model v0.6.3 // a node's own metrics as values, for its page
	github.com/quic-go/qpack v0.6.0 // header compression of HTTP/3
	github.com/quic-go/quic-go v0.65.0 // QUIC for http3_listen: the standard library exports none
	github.com/sony/gobreaker/v2 v2.4.0 // pauses between attempts to reach a shard
	github.com/spf13/cobra v1.10.2 // commands, help, completion and man pages
	github.com/spf13/pflag v1.0.9 // flags of cobra
	go.yaml.in/yaml/v4 v4.0.0 // rules and settings, with the position of each node
	golang.org/x/net v0.60.0 // exactly: proxy/http2 stands on its frames and header compression
	golang.org/x/sys v0.49.0 // constants and types of system calls
	golang.org/x/term v0.46.0 // the width of a terminal
)

// Tests only.
require (
	github.com/cockroachdb/datadriven v1.0.2 // scenarios and transcripts in files
	github.com/coder/websocket v1.8.14 // clients and servers of WebSocket, through the proxy
	github.com/dunglas/httpsfv v1.1.2 // an independent reader of structured fields, for RateLimit
	github.com/google/go-cmp v0.7.0 // differences of large values
	github.com/prometheus/common v0.72.0 // a parser of what a node exposes
	github.com/rogpeppe/go-internal v1.16.0 // scripts that run commands, and their output
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // checks the schema of rules files
	go.uber.org/goleak v1.3.0 // goroutines that outlive a test
	golang.org/x/tools v0.51.0 // the call graph behind the proof that a decision reaches no network
	pgregory.net/rapid v1.3.0 // properties over drawn inputs
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/google/btree v1.1.3 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-immutable-radix v1.3.1 // indirect
	github.com/hashicorp/go-metrics v0.7.0 // indirect
	github.com/hashicorp/go-msgpack/v2 v2.1.5 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/hashicorp/go-sockaddr v1.0.7 // indirect
	github.com/hashicorp/golang-lru v1.0.2 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/miekg/dns v1.1.73 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/sean-/seed v0.0.0-20170313163322-e2103e2c3529 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
