package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/pop/admin"
)

// An operator asks a node that runs.
type operator struct {
	node   string
	asJSON bool
}

func (o *operator) register(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&o.node, "node", "127.0.0.1:9180", "`address` of the node's metrics listener")
}

// url returns the URL of a path at the node.
func (o *operator) url(path string, values url.Values) string {
	base := o.node
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	return strings.TrimSuffix(base, "/") + path + "?" + values.Encode()
}

var operatorClient = &http.Client{Timeout: 10 * time.Second}

// call asks the node, and returns what it answers.
func (o *operator) call(method, path string, values url.Values) ([]byte, error) {
	req, err := http.NewRequest(method, o.url(path, values), nil)
	if err != nil {
		return nil, usageError{fmt.Errorf("--node: %q is not an address", o.node), "--node 127.0.0.1:9180"}
	}
	resp, err := operatorClient.Do(req)
	if err != nil {
		return nil, hintedError{fmt.Errorf("asking the node: %w", errors.Unwrap(err)), "--node is the address of its metrics listener; nodes of 'edge pop' have 9181, 9182, …"}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<30))
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking the node: %w", err)
	case resp.StatusCode >= 300:
		return nil, fmt.Errorf("the node says: %s", packages.ReplaceAllLiteralString(strings.TrimSpace(string(body)), ""))
	}
	return body, nil
}

func newMitigations() *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use:   "mitigations",
		Short: "List who is mitigated, or lift a mitigation",
		Long: `List who is mitigated, as a node that runs knows it: the same on all nodes of a PoP.
Which rule it was, and for whom, is known to the node where a mitigation started, the
latter with --log-clients.`,
		Example: `  edge mitigations
  edge mitigations --node 127.0.0.1:9181 --json
  edge mitigations lift --rule login --ip 192.0.2.1
  edge mitigations lift --key ce9259ecd6f4cc481f3c4a3cfdd4b762`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := o.call("GET", "/mitigations", nil)
			if err != nil || o.asJSON {
				return errors.Join(err, writeOut(cmd, body))
			}
			var answer struct{ Mitigations []admin.Mitigation }
			if err := json.Unmarshal(body, &answer); err != nil {
				return fmt.Errorf("the node's answer: %w", err)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(t, "KEY\tENDS IN\tRULE\tCLIENT\tWHY")
			for _, m := range answer.Mitigations {
				why := m.Why
				if m.Lifted {
					why = "lifted"
				}
				fmt.Fprintf(t, "%s\t%v\t%s\t%s\t%s\n", m.Key, time.Duration(m.Left*float64(time.Second)).Round(time.Second), cmp.Or(m.Rule, "-"), cmp.Or(m.Client, "-"), why)
			}
			return t.Flush()
		},
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "write JSON")
	cmd.AddCommand(newLift(&o))
	return cmd
}

func newLift(o *operator) *cobra.Command {
	var key, rule, ip string
	cmd := &cobra.Command{
		Use:   "lift",
		Short: "End a mitigation at once, on all nodes, and forget the counts that made it",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values := url.Values{}
			switch {
			case key != "" && rule == "" && ip == "":
				values.Set("key", key)
			case key == "" && rule != "" && ip != "":
				if _, err := netip.ParseAddr(ip); err != nil {
					return usageError{fmt.Errorf("--ip: %q is not an address", ip), ""}
				}
				values.Set("rule", rule)
				values.Set("ip", ip)
			default:
				return usageError{errors.New("give --key, or --rule and --ip"), "edge mitigations lists the keys"}
			}
			if _, err := o.call("POST", "/mitigations/lift", values); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "lifted")
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "`key` of the mitigation, as lists and log lines have it")
	cmd.Flags().StringVar(&rule, "rule", "", "`ID` of a rule that counts by ip alone, with --ip")
	cmd.Flags().StringVar(&ip, "ip", "", "`address` of the client, with --rule")
	return cmd
}

func newShards() *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use:   "shards",
		Short: "List the shards of a PoP, or take one out of the ring",
		Long: `List the shards of a PoP as a node that runs sees them, or take one out of the ring of
all nodes, so that it can be stopped: its part of the keys, and only that, moves to the
others, and what it has counted still counts. It stays out until it is undrained, also
where all nodes are started again: the other shards keep the word. Nodes without gossip
have to be told one by one.`,
		Example: `  edge shards
  edge shards drain 10.0.0.2:11211
  edge shards undrain 10.0.0.2:11211`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := o.call("GET", "/shards", nil)
			if err != nil || o.asJSON {
				return errors.Join(err, writeOut(cmd, body))
			}
			var answer struct{ Shards []admin.Shard }
			if err := json.Unmarshal(body, &answer); err != nil {
				return fmt.Errorf("the node's answer: %w", err)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(t, "SHARD\tSTATE\tIN THE RING")
			for _, s := range answer.Shards {
				state, in := "up", "yes"
				if s.Down {
					state = "down"
				}
				switch {
				case s.Drained:
					in = "no, drained"
				case !s.InRing:
					in = "no"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\n", s.Addr, state, in)
			}
			return t.Flush()
		},
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "write JSON")
	for name, short := range map[string]string{"drain": "Take a shard out of the ring of all nodes", "undrain": "Let a shard own keys again"} {
		cmd.AddCommand(&cobra.Command{
			Use:   name + " HOST:PORT",
			Short: short,
			Args: func(cmd *cobra.Command, args []string) error {
				if len(args) != 1 {
					return usageError{fmt.Errorf("%s takes one shard", cmd.CommandPath()), "edge shards lists them"}
				}
				return nil
			},
			RunE: func(cmd *cobra.Command, args []string) error {
				if _, err := o.call("POST", "/shards/"+name, url.Values{"shard": args}); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%sed\n", name)
				return err
			},
		})
	}
	return cmd
}

// writeOut writes a result.
func writeOut(cmd *cobra.Command, result []byte) error {
	_, err := cmd.OutOrStdout().Write(result)
	return err
}
