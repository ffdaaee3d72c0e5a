package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/operate"
)

func newExplain() *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use:   "explain TARGET",
		Short: "Explain why a client is refused, or how far it is from each limit",
		Long: `Explain why a client is refused, for how long, and how to lift the mitigation, or how
far it is from each limit. TARGET is an address, the ID of a refusal, a key as in lists and log lines,
or a rule and the values of its characteristics. Any node of the PoP can answer: it reads
the counts of the other nodes from the key's shard.

A refused client gets the ID in the header Refusal-Id, and in the body if the rule's body
contains {id}. The access log has it too.

An address is enough for rules that count only by ip, network or label. It also finds mitigations
of other rules if nodes run with --log-clients; otherwise these rules need the values of their characteristics.`,
		Example: `  edge explain 192.0.2.1
  edge explain 7kq2-m9xd
  edge explain rule=login,ip=192.0.2.1
  edge explain rule=api,header:x-api-key=abc,path=/v1/items --json`,
		Args: takes("an address, an ID, a key, or a rule and its values"),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := parseTarget(args[0])
			if err != nil {
				return err
			}
			return show(cmd, &o, "GET", "/api/v1/explain", values, func(w io.Writer, e *operate.Explanation) {
				writeExplanation(w, e, values.Get("ip"))
			})
		},
	}
	o.register(cmd)
	return cmd
}

// parseTarget parses the target to explain.
func parseTarget(text string) (url.Values, error) {
	values := url.Values{}
	for name, value := range operate.ParseTarget(text) {
		values.Set(name, value)
	}
	if text := values.Get("id"); text != "" {
		id, ok := counter.ParseID(text)
		if !ok {
			return nil, usageError{fmt.Errorf("%q is not an address, an ID such as 7kq2-m9xd, or a key of %d hexadecimal digits", text, 2*len(counter.Key{})), "edge explain rule=login,ip=192.0.2.1"}
		}
		values.Set("id", id.String())
	}
	return values, nil
}

// writeExplanation writes e as text.
func writeExplanation(w io.Writer, e *operate.Explanation, ip string) {
	switch l := e.Listed; {
	case l == nil:
	case l.List == "deny":
		fmt.Fprintf(w, "deny list: refused with 403 by entry %s\n  to allow it, remove the entry from the rules files\n", l.Network)
	default:
		fmt.Fprintf(w, "allow list: neither counted nor mitigated, by entry %s\n", l.Network)
	}
	for i := range e.Keys {
		writeKeyState(w, &e.Keys[i], ip)
	}
	for _, need := range e.Needs {
		fmt.Fprintf(w, "rule %s: counts by %s, so an address is not enough\n  edge explain %s\n", need.Rule, strings.Join(need.Characteristics, " and "), need.Target(ip))
	}
	if len(e.Keys)+len(e.Needs) == 0 && e.Listed == nil {
		fmt.Fprintln(w, "no rule applies to this client")
	}
}

// writeKeyState writes the state of a key. ip is the address that was asked about, if any.
func writeKeyState(w io.Writer, k *operate.KeyState, ip string) {
	m := k.Mitigation
	state := "not mitigated"
	switch {
	case m == nil:
	case m.Lifted:
		state = fmt.Sprintf("not mitigated: lifted at node %s on %s", m.Node, m.Start.Format(time.RFC3339))
	case m.Ineffective:
		state = "not mitigated: not acted on under the current rules"
	default:
		state = "mitigated, action " + cmp.Or(k.Action, "unknown")
		switch {
		case k.Sheds:
			state += ", and " + ip + " is among the clients that are refused"
		case k.Action == "shed" && ip != "":
			state += ", and " + ip + " is among the clients that pass"
		}
	}
	fmt.Fprintf(w, "rule %s: %s\n  key %s\n", cmp.Or(k.Rule, "unknown"), state, k.Key)
	if m != nil && m.ID != "" {
		fmt.Fprintf(w, "  its refusals have the ID %s\n", m.ID)
	}
	if m != nil && !m.Lifted {
		why := m.Why
		if m.ByHand {
			why = "by hand"
		}
		fmt.Fprintf(w, "  why: %s\n  by node %s, on %s\n", why, m.Node, m.Start.Format(time.RFC3339))
		switch {
		case m.Client == "":
		case m.ByHand:
			fmt.Fprintf(w, "  client: %s\n", m.Client)
		default:
			request := strings.Join(strings.Fields(m.Method+" "+m.Host+m.Path), " ")
			fmt.Fprintf(w, "  request that crossed the threshold: %s\n", strings.TrimSpace("from "+m.Client+" "+request))
		}
		if !m.Ineffective {
			fmt.Fprintf(w, "  ends in %v; to end it now: edge mitigations lift --key %s\n", left(*m), k.Key)
		}
	}
	for _, l := range k.Limits {
		fmt.Fprintf(w, "  now: %s; %d more allowed\n", l.Text, l.Remaining)
	}
	if k.Problem != "" {
		fmt.Fprintf(w, "  note: %s\n", k.Problem)
	}
}
