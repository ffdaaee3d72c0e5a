package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/setting"
)

func newMitigations() *cobra.Command {
	var o operator
	var rule, client, state string
	cmd := o.register(&cobra.Command{
		Use:   "mitigations",
		Short: "List, lift or start mitigations",
		Long: `List what is mitigated, by which rule and why, as known to a running node. All
nodes of a PoP know the same mitigations. Addresses are shown if the nodes run with --log-clients.
Headers, cookies and parameters are never shown, only the fingerprint of their key. To find it for
a value, use edge explain.`,
		Example: `  edge mitigations
  edge mitigations --rule login --state active --node 127.0.0.1:9191 --json
  edge mitigations lift 192.0.2.1
  edge mitigations add 192.0.2.1 --for 4h --reason abuse
  edge mitigations add rule=login,ip=192.0.2.1 --for 15m --reason "password spraying"`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			params := map[string]string{"rule": rule, "client": client, "state": state, "limit": strconv.Itoa(pageSize)}
			if state == "all" {
				delete(params, "state")
			}
			all, err := o.list(nonEmpty(params))
			if err != nil {
				return err
			}
			return o.render(cmd, all, all.WriteText)
		},
	})
	define(cmd.Flags(), []setting.Setting{
		{Name: "rule", Value: setting.Text(&rule, "", nil), Help: "only mitigations by the rule with this `ID`, or any: clients refused by hand, regardless of rules"},
		{Name: "client", Value: setting.Text(&client, "", nil), Help: "only mitigations that act on this `address`, or of clients in a network; a network needs nodes with --log-clients"},
		{Name: "state", Value: oneOf(&state, "current", "active", "logged", "ineffective", "lifted", "all"), Help: "only mitigations in this `state`: active (refused), logged (a dry run), ineffective (not acted on), lifted, current (all but lifted) or all"},
	})
	cmd.AddCommand(newLift(&o), newAdd(&o))
	return cmd
}

// nonEmpty removes parameters that are empty.
func nonEmpty(params map[string]string) map[string]string {
	maps.DeleteFunc(params, func(_, value string) bool { return value == "" })
	return params
}

// pageSize is the number of mitigations per request.
const pageSize = 1000

// list fetches the mitigations that params select, one page at a time.
func (o *operator) list(params map[string]string) (*operate.Mitigations, error) {
	all := &operate.Mitigations{Mitigations: []operate.Mitigation{}}
	for {
		var page operate.Mitigations
		err := o.ask("GET", "/api/v1/mitigations", params, &page)
		all.Mitigations, all.Total = append(all.Mitigations, page.Mitigations...), page.Total
		if err != nil || page.Next == "" {
			return all, err
		}
		params["cursor"] = page.Next
	}
}

func newAdd(o *operator) *cobra.Command {
	var length time.Duration
	var reason string
	cmd := &cobra.Command{
		Use:   "add TARGET",
		Short: "Start a mitigation by hand, on all nodes",
		Long: `Start a mitigation by hand, on all nodes. Given an address alone, they refuse it with 403, as if it
were on the deny list. Given a rule and the values of its characteristics, they apply the rule's
action, regardless of counts: log refuses nobody, and shed only clients beyond the threshold.
Given a key or the ID of a refusal, they extend its mitigation.
The mitigation ends after --for, or when it is lifted. If the key already has a mitigation
that ends later, that mitigation stays.`,
		Example: `  edge mitigations add 192.0.2.1 --for 4h --reason abuse
  edge mitigations add rule=login,ip=192.0.2.1 --for 15m --reason "password spraying"`,
		Args: takes("an address, an ID, a key, or a rule and its values"),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := parseTarget(args[0])
			switch {
			case err != nil:
				return err
			case target["network"] != "":
				return usageError{fmt.Errorf("%s is a network", target["network"]), "add it to deny in the rules files, " +
					"or give a rule that counts by network and whose action is not shed or log: rule=ID,network:24/48=" + target["network"]}
			case length <= 0:
				return usageError{errors.New("missing --for, the duration of the mitigation"), "--for 15m"}
			case reason == "":
				return usageError{errors.New("missing --reason, which appears in the node's log"), `--reason "password spraying"`}
			}
			target["duration"], target["reason"] = length.String(), reason
			return show(cmd, o, "POST", "/api/v1/mitigations", target, func(m *operate.Mitigation, w io.Writer) {
				fmt.Fprintf(w, "mitigated for %v: %s, rule %s, action %s, key %s\n", m.Remaining(), m.About, m.RuleText(), m.Action, m.Key)
				if m.Note != "" {
					fmt.Fprintf(w, "note: %s\n", m.Note)
				}
				fmt.Fprintf(w, "to end it: edge mitigations lift %s\n", m.Key+o.again())
			})
		},
	}
	define(cmd.Flags(), []setting.Setting{
		{Name: "for", Value: setting.Parsed("duration", &length, "", setting.Span(time.Second, operate.MaxDuration)), Help: "duration of the mitigation, such as 15m; required"},
		{Name: "reason", Value: setting.Text(&reason, "", nil), Help: "reason, for the node's log; required"},
	})
	return cmd
}

func newLift(o *operator) *cobra.Command {
	var rule, client, reason string
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:   "lift [TARGET]",
		Short: "End mitigations immediately, on all nodes, and forget the counts that led to them",
		Long: `End mitigations immediately, on all nodes, and forget the counts that led to them. TARGET is
a network, the ID of a refusal, a key, a rule and the values of its characteristics, or an address,
which stands for all mitigations that act on it. With --all instead of a TARGET, end all
mitigations, or those of a rule, or those that act on an address or on clients in a network.`,
		Example: `  edge mitigations lift 192.0.2.1
  edge mitigations lift 7kq2-m9xd --reason "it is their office"
  edge mitigations lift rule=login,ip=192.0.2.1
  edge mitigations lift --all --rule login --dry-run
  edge mitigations lift --all --client 192.0.2.0/24`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1 || all == (len(args) == 1):
				return usageError{errors.New("give one target, or --all"), "edge mitigations lift 192.0.2.1"}
			case all:
				params := map[string]string{"dry_run": strconv.FormatBool(dryRun), "reason": reason, "rule": rule, "client": client}
				return show(cmd, o, "POST", "/api/v1/mitigations/lift-all", nonEmpty(params), (*operate.LiftedAll).WriteText)
			}
			target, err := parseTarget(args[0])
			if err != nil {
				return err
			}
			target["reason"] = reason
			return show(cmd, o, "POST", "/api/v1/mitigations/lift", target, func(l *operate.Lifted, w io.Writer) {
				for _, m := range l.Mitigations {
					fmt.Fprintf(w, "lifted: rule %s, %s, key %s\n", m.RuleText(), cmp.Or(m.About, m.Client, "unknown client"), m.Key)
				}
			})
		},
	}
	define(cmd.Flags(), []setting.Setting{
		{Name: "all", Value: setting.Bool(&all, false), Help: "end all mitigations, or those that --rule and --client select"},
		{Name: "rule", Value: setting.Text(&rule, "", nil), Help: "with --all: `ID` of a rule, or any: clients refused by hand, regardless of rules", Needs: []string{"all"}},
		{Name: "client", Value: setting.Text(&client, "", nil), Help: "with --all: an `address`, or a network of clients, which needs nodes with --log-clients", Needs: []string{"all"}},
		{Name: "dry-run", Value: setting.Bool(&dryRun, false), Help: "with --all: only print their count", Needs: []string{"all"}},
		{Name: "reason", Value: setting.Text(&reason, "", nil), Help: "reason, for the node's log"},
	})
	return cmd
}
