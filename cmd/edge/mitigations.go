package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/setting"
)

func newMitigations() *cobra.Command {
	var o operator
	var rule, client, state string
	cmd := &cobra.Command{
		Use:   "mitigations",
		Short: "List, lift or start mitigations",
		Long: `List which clients are mitigated, by which rule and why, as known to a running node. All
nodes of a PoP know the same mitigations. Clients are shown if the nodes run with --log-clients.`,
		Example: `  edge mitigations
  edge mitigations --rule login --state active --node 127.0.0.1:9191 --json
  edge mitigations lift --rule login --ip 192.0.2.1
  edge mitigations add rule=login,ip=192.0.2.1 --for 15m --reason "password spraying"`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.list(cmd, nonEmpty(url.Values{"rule": {rule}, "client": {client}, "state": {state}, "limit": {strconv.Itoa(pageSize)}}))
		},
	}
	o.register(cmd)
	define(cmd.Flags(), []setting.Setting{
		{Name: "rule", Value: setting.Text(&rule, "", nil), Help: "only mitigations by the rule with this `ID`"},
		{Name: "client", Value: setting.Text(&client, "", nil), Help: "only mitigations of clients at this `address` or network; needs nodes with --log-clients"},
		{Name: "state", Value: setting.Text(&state, "", nil), Help: "only mitigations in this `state`: active, ineffective or lifted"},
	})
	cmd.AddCommand(newLift(&o), newAdd(&o))
	return cmd
}

// nonEmpty removes parameters that are empty.
func nonEmpty(params url.Values) url.Values {
	maps.DeleteFunc(params, func(_ string, values []string) bool { return values[0] == "" })
	return params
}

// pageSize is the number of mitigations per request.
const pageSize = 1000

// list lists the mitigations that values select, one page at a time.
func (o *operator) list(cmd *cobra.Command, values url.Values) error {
	all := operate.Mitigations{Mitigations: []operate.Mitigation{}}
	for {
		var page operate.Mitigations
		if err := o.ask("GET", "/api/v1/mitigations", values, &page); err != nil {
			return err
		}
		all.Mitigations, all.Total = append(all.Mitigations, page.Mitigations...), page.Total
		if page.Next == "" {
			break
		}
		values.Set("cursor", page.Next)
	}
	if o.asJSON {
		return writeJSON(cmd.OutOrStdout(), all, "")
	}
	return columns(cmd.OutOrStdout(), func(w io.Writer) {
		fmt.Fprintln(w, "KEY\tENDS IN\tRULE\tACTION\tCLIENT\tNODE\tWHY")
		for _, m := range all.Mitigations {
			why := m.Why
			switch {
			case m.Lifted:
				why = "lifted"
			case m.Ineffective:
				why += " (not acted on under the current rules)"
			case m.ByHand:
				why = "by hand"
			}
			fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\n", m.Key, left(m), cmp.Or(m.Rule, "-"), cmp.Or(m.Action, "-"), cmp.Or(m.Client, "-"), cmp.Or(m.Node, "-"), why)
		}
	})
}

// left returns the remaining time of a mitigation, in whole seconds.
func left(m operate.Mitigation) time.Duration {
	return time.Duration(m.Left * float64(time.Second)).Round(time.Second)
}

func newAdd(o *operator) *cobra.Command {
	var length time.Duration
	var reason string
	cmd := &cobra.Command{
		Use:   "add TARGET",
		Short: "Start a mitigation by hand, on all nodes",
		Long: `Start a mitigation by hand, on all nodes. TARGET is a rule and the values of its
characteristics. All nodes apply the rule's action, whatever was counted, until the mitigation ends
or is lifted. If the key has a mitigation that ends later, that one stays.`,
		Example: `  edge mitigations add rule=login,ip=192.0.2.1 --for 15m --reason "password spraying"`,
		Args:    takes("a rule and its values"),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := parseTarget(args[0])
			switch {
			case err != nil:
				return err
			case !values.Has("rule"):
				return usageError{errors.New("missing rule of the mitigation"), "edge mitigations add rule=login,ip=192.0.2.1"}
			case length <= 0:
				return usageError{errors.New("missing --for, the duration of the mitigation"), "--for 15m"}
			case reason == "":
				return usageError{errors.New("missing --reason, which appears in the node's log"), `--reason "password spraying"`}
			}
			values.Set("duration", length.String())
			values.Set("reason", reason)
			return show(cmd, o, "POST", "/api/v1/mitigations", values, func(w io.Writer, m *operate.Mitigation) {
				fmt.Fprintf(w, "mitigated for %v, action %s, key %s\n", left(*m), m.Action, m.Key)
			})
		},
	}
	define(cmd.Flags(), []setting.Setting{
		{Name: "for", Value: setting.Parsed("duration", &length, "", setting.Span(1, math.MaxInt64)), Help: "duration of the mitigation, such as 15m; required"},
		{Name: "reason", Value: setting.Text(&reason, "", nil), Help: "reason, for the node's log; required"},
	})
	return cmd
}

func newLift(o *operator) *cobra.Command {
	var key, rule, ip, prefix, reason string
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:   "lift",
		Short: "End a mitigation immediately, on all nodes, and forget the counts that led to it",
		Long: `End a mitigation immediately, on all nodes, and forget the counts that led to it. Select it
by --key, or by --rule and --ip if the rule counts by ip alone. With --all, end all mitigations, or
those of a rule, or of clients in a prefix.`,
		Example: `  edge mitigations lift --rule login --ip 192.0.2.1
  edge mitigations lift --all --rule login --dry-run
  edge mitigations lift --all --prefix 192.0.2.0/24`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all {
				values := url.Values{"dry_run": {strconv.FormatBool(dryRun)}, "reason": {reason}, "rule": {rule}, "client": {prefix}}
				return show(cmd, o, "POST", "/api/v1/mitigations/lift-all", nonEmpty(values), writeLifted)
			}
			byKey, byClient := key != "" && rule == "" && ip == "", key == "" && rule != "" && ip != ""
			if !byKey && !byClient {
				return usageError{errors.New("give --key, or --rule and --ip"), "edge mitigations lists the keys"}
			}
			values := url.Values{"key": {key}, "rule": {rule}, "ip": {ip}, "reason": {reason}}
			return show(cmd, o, "POST", "/api/v1/mitigations/lift", nonEmpty(values), func(w io.Writer, _ *operate.Lifted) {
				fmt.Fprintln(w, "lifted")
			})
		},
	}
	define(cmd.Flags(), []setting.Setting{
		{Name: "all", Value: setting.Bool(&all, false), Help: "end all mitigations, or those that --rule and --prefix select"},
		{Name: "prefix", Value: setting.Text(&prefix, "", checkNetwork), Help: "with --all: the clients' `network`; needs nodes with --log-clients", Needs: []string{"all"}},
		{Name: "dry-run", Value: setting.Bool(&dryRun, false), Help: "with --all: only print their count", Needs: []string{"all"}},
		{Name: "key", Value: setting.Text(&key, "", nil), Help: "`key` of the mitigation, as in lists and log lines", Contradicts: "all"},
		{Name: "rule", Value: setting.Text(&rule, "", nil), Help: "`ID` of a rule: one that counts by ip alone, with --ip, or any with --all"},
		{Name: "ip", Value: setting.Text(&ip, "", checkAddress), Help: "`address` of the client, with --rule", Contradicts: "all"},
		{Name: "reason", Value: setting.Text(&reason, "", nil), Help: "reason, for the node's log"},
	})
	return cmd
}

func checkAddress(text string) error {
	if _, err := netip.ParseAddr(text); err != nil {
		return errors.New("must be an address")
	}
	return nil
}

func writeLifted(w io.Writer, l *operate.LiftedAll) {
	what := "lifted"
	if l.DryRun {
		what = "would be lifted"
	}
	fmt.Fprintf(w, "%s: %d\n", what, l.Mitigations)
	if l.Unknown > 0 {
		fmt.Fprintf(w, "not selected, because the node does not know their rule or client: %d\n", l.Unknown)
	}
}
