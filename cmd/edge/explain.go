package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/operate"
)

func newExplain() *cobra.Command {
	var o operator
	return o.register(&cobra.Command{
		Use:   "explain TARGET",
		Short: "Explain why a client is refused, or how far it is from each limit",
		Long: `Explain why a client is refused, for how long, and how to lift the mitigation; or, if the client
is not refused, how far it is from each limit. TARGET is an address, a network, the ID of a
refusal, a key as in lists and log lines, or a rule and the values of its characteristics.
Values without a rule stand for all rules that count by them. Any node of the PoP can answer: it
reads the counts of the other nodes from the key's shard.

A refused client gets the ID in the header Refusal-Id, and in the body if the rule's body
contains {id}. The access log has it too. Lists show headers, cookies and parameters only as the
fingerprint of a key; explain prints the fingerprint for a value.

An address is enough for rules that count only by ip, network or label. It also finds
mitigations of other rules if nodes run with --log-clients; otherwise these rules need the
values of their characteristics.`,
		Example: `  edge explain 192.0.2.1
  edge explain 7kq2-m9xd
  edge explain header:x-api-key=abc
  edge explain rule=api,ip=192.0.2.1,header:x-api-key=abc --json`,
		Args: takes("an address, a network, an ID, a key, or a rule and its values"),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := parseTarget(args[0])
			if err != nil {
				return err
			}
			return show(cmd, &o, "GET", "/api/v1/explain", target, func(e *operate.Explanation, w io.Writer) {
				writeExplanation(w, e, target, o.again())
			})
		},
	})
}

func parseTarget(text string) (map[string]string, error) {
	target, err := operate.ParseTarget(text)
	if err != nil {
		return nil, usageError{err, "give each value once: rule=login,ip=192.0.2.1"}
	}
	if text, given := target["id"]; given {
		id, ok := counter.ParseID(text)
		if !ok {
			return nil, usageError{fmt.Errorf("%q is not an address, a network, an ID such as 7kq2-m9xd, or a key of %d hexadecimal digits", text, 2*len(counter.Key{})), "edge explain rule=login,ip=192.0.2.1"}
		}
		target["id"] = id.String()
	}
	return target, nil
}

// writeExplanation writes e as text; again has the flags that further commands need.
func writeExplanation(w io.Writer, e *operate.Explanation, target map[string]string, again string) {
	switch l := e.Listed; {
	case l == nil:
	case l.List == "deny":
		fmt.Fprintf(w, "deny list: refused with 403 by entry %s\n  to allow it, remove the entry from the rules files\n", l.Network)
	default:
		fmt.Fprintf(w, "allow list: neither counted nor mitigated, by entry %s\n", l.Network)
	}
	for i := range e.Keys {
		e.Keys[i].WriteText(w, target["ip"], again)
	}
	for _, need := range e.Needs {
		fmt.Fprintf(w, "rule %s: counts by %s, so more values are needed\n  edge explain %s\n",
			need.Rule, strings.Join(need.Characteristics, " and "), shellQuote(need.Target(target))+again)
	}
	if len(e.Keys)+len(e.Needs) == 0 && e.Listed == nil {
		fmt.Fprintln(w, "no rule applies to this client")
	}
}
