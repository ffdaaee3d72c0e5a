package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/count"
)

// gossipFlags are the settings of a node's talk with the other nodes.
type gossipFlags struct {
	listen, advertise, keyFile string
	join, keys                 []string
	shardListen                string
	maxNodes                   int
}

func (g *gossipFlags) register(s *pflag.FlagSet) {
	s.StringVar(&g.listen, "gossip-listen", "", "`address` for the other nodes, IP:PORT, UDP and TCP; empty: they learn of mitigations from the shards")
	s.StringVar(&g.advertise, "gossip-advertise", "", "`address` that the other nodes reach --gossip-listen by, if it is another one")
	listVar(s, &g.join, "join", "`addresses` of other nodes, HOST:PORT, to begin with; the node's own may be among them")
	s.IntVar(&g.maxNodes, "max-nodes", count.MinNodes, "how many nodes the PoP has at once, at most; limits with sub-windows need room for all")
	s.StringVar(&g.shardListen, "shard-listen", "", "`address` of a shard inside of this node for all nodes, HOST:PORT, instead of --shard: nodes find each other's by gossip")
	listVar(s, &g.keys, "gossip-key", "`keys` of the gossip, in base64, the first for what is sent; better given by --gossip-key-file or EDGE_GOSSIP_KEY")
	s.StringVar(&g.keyFile, "gossip-key-file", "", "`file` with the keys of the gossip, in base64, one in a line, the first for what is sent; loaded again like the rules")
}

// options returns the options, nil without gossip, and what is wrong with them and with
// those that f has.
func (g *gossipFlags) options(f *nodeFlags) (*pop.GossipOptions, error) {
	s := f.set
	if g.listen == "" {
		for name, given := range map[string]bool{"gossip-advertise": g.advertise != "", "join": len(g.join) > 0, "gossip-key": len(g.keys) > 0, "gossip-key-file": g.keyFile != "", "shard-listen": g.shardListen != ""} {
			if given {
				return nil, fail(s, name, "--gossip-listen 10.0.0.1:7946", "it needs an address to listen on for the other nodes")
			}
		}
		return nil, nil
	}
	const hint = "write IP:PORT, or :PORT for all addresses of the machine"
	host, port, err := net.SplitHostPort(g.listen)
	if err != nil || !isPort(port) {
		return nil, fail(s, "gossip-listen", hint, "%q is no address to listen on", g.listen)
	}
	ip := netip.IPv4Unspecified()
	if host != "" {
		if ip, err = netip.ParseAddr(host); err != nil {
			return nil, fail(s, "gossip-listen", hint, "%q is not an IP address", host)
		}
	}
	var errs []error
	var keys [][]byte
	for _, text := range g.keys {
		key, err := base64.StdEncoding.DecodeString(text)
		if n := len(key); err != nil || n != 16 && n != 24 && n != 32 {
			// The text is a secret, or nearly one.
			errs = append(errs, fail(s, "gossip-key", "head -c 32 /dev/urandom | base64", "a key is not base64 of 16, 24 or 32 bytes"))
		}
		keys = append(keys, key)
	}
	if len(g.keys) > 0 && g.keyFile != "" {
		errs = append(errs, usageError{fmt.Errorf("%s and %s contradict each other", place(s, "gossip-key"), place(s, "gossip-key-file")), "give one of them"})
	}
	if g.keyFile == "" && len(g.keys) == 0 && !ip.IsLoopback() {
		errs = append(errs, fail(s, "gossip-listen", "--gossip-key-file FILE, the same on every node, made by: head -c 32 /dev/urandom | base64 > FILE",
			"without a key, nodes listen on the loopback network only"))
	}
	if g.advertise != "" {
		if _, err := netip.ParseAddrPort(g.advertise); err != nil {
			errs = append(errs, fail(s, "gossip-advertise", "write IP:PORT", "%q is not IP:PORT", g.advertise))
		}
	}
	for _, addr := range g.join {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || !isPort(port) || port == "0" {
			errs = append(errs, fail(s, "join", "write HOST:PORT, as the other node's --gossip-listen has it", "%q is not HOST:PORT", addr))
		}
	}
	if g.shardListen != "" {
		errs = append(errs, checkListeners(s, []string{"shard-listen"}, []string{g.shardListen}))
		if len(f.shards) > 0 {
			errs = append(errs, usageError{fmt.Errorf("%s and %s contradict each other", place(s, "shard-listen"), place(s, "shard")), "give one of them"})
		}
		if f.secret == "" && f.secretFile == "" {
			errs = append(errs, fail(s, "shard-listen", "--secret-file FILE, made by: head -c 24 /dev/urandom | base64 > FILE",
				"a node that shares shards needs a secret, the same on every node of the PoP"))
		}
	}
	return &pop.GossipOptions{Listen: net.JoinHostPort(ip.String(), port), Advertise: g.advertise, Join: g.join, Keys: keys, KeyFile: g.keyFile}, errors.Join(errs...)
}
