package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
)

// isNodeFile reports whether a file has settings of a node: one that no rules file has, or names of rules files. It reads
// no pipe, which can be read only once, and no file that is much longer than settings are.
func isNodeFile(file string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return false
	}
	text, err := os.ReadFile(file)
	root := strictyaml.New(file, text).Parse()
	if err != nil || root == nil || !strictyaml.IsMapping(root) {
		return false
	}
	found := false
	for pair := range slices.Chunk(root.Content, 2) {
		switch name := pair[0].Value; {
		case name == "cases":
			return false // test cases of rules, which name rules files, too
		case name == "rules":
			found = found || slices.ContainsFunc(append(pair[1].Content, pair[1]), strictyaml.IsString)
		default:
			found = found || slices.ContainsFunc(pop.Settings(new(pop.Options)), func(row setting.Setting) bool { return key(row.Name) == name })
		}
	}
	return found
}

// checkNode checks the settings in a file as the node that reads it does, and that the names in them resolve.
func checkNode(cmd *cobra.Command, file string) error {
	node := newNode(func(ctx context.Context, o pop.Options) error {
		n, err := pop.New(o)
		if err = errors.Join(err, resolve(ctx, o)); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: node %s with %s\n", file, o.Name, chart.Count(len(n.Rules().Rules()), "rule"))
		return err
	})
	node.SilenceUsage, node.SilenceErrors = true, true
	node.SetErr(cmd.ErrOrStderr())
	node.SetArgs([]string{"--config", file})
	return node.ExecuteContext(cmd.Context())
}

// resolve returns an error for each name of another machine in o that does not resolve.
func resolve(ctx context.Context, o pop.Options) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var errs []error
	for name, addrs := range map[string][]string{
		"shard": o.Shards, "join": o.Gossip.Join, "origin": {o.Origin}, "acme-origin": {o.ACMEOrigin}, "host-origin": slices.Collect(maps.Values(o.HostOrigins)),
	} {
		for _, addr := range addrs {
			host, _, _ := net.SplitHostPort(addr) // checked before
			if at, err := url.Parse(addr); err == nil && at.Host != "" {
				host, addr = at.Hostname(), at.Redacted()
			}
			_, err := net.DefaultResolver.LookupHost(ctx, host)
			if unknown, ok := errors.AsType[*net.DNSError](err); host != "" && ok {
				errs = append(errs, &setting.Error{Setting: name, Value: strconv.Quote(addr), Problem: "does not resolve: " + unknown.Err})
			}
		}
	}
	return errors.Join(errs...)
}
