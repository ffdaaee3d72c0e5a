package operate

// This file has the text that commands print instead of JSON.

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// WriteText writes the state as text. ip is the address that was given, if any; again has the flags for more commands.
func (k *KeyState) WriteText(w io.Writer, ip, again string) {
	m := k.Mitigation
	state := "not mitigated"
	switch {
	case k.Spared != "":
		state = "does not apply: " + k.Spared
	case k.Unavailable:
		state = "refused with 503 while the key's shard is unavailable, because of on_failure: closed"
	case m == nil:
	case m.Lifted:
		state = fmt.Sprintf("not mitigated: lifted at node %s on %s", m.Node, m.Start.Format(time.RFC3339))
	case m.Ineffective:
		state = "not mitigated: not acted on under the current rules"
	case k.DryRun():
		state = "mitigated, action log: a dry run, so it passes"
	default:
		state = "mitigated, action " + cmp.Or(k.Action, "unknown")
		switch {
		case k.Sheds:
			state += ", and " + ip + " is among the clients that are refused"
		case k.Action == "shed" && ip != "":
			state += ", and " + ip + " is among the clients that pass"
		}
	}
	fmt.Fprintf(w, "rule %s: %s\n", nameOf(k.Rule, k.Action, "unknown"), state)
	if k.About != "" {
		fmt.Fprintf(w, "  counts %s\n", k.About)
	}
	fmt.Fprintf(w, "  key %s\n", k.Key)
	if m != nil && m.ID != "" {
		fmt.Fprintf(w, "  its refusals have the ID %s\n", m.ID)
	}
	if m != nil && !m.Lifted {
		why := m.Why
		if m.ByHand {
			why = "by hand"
		}
		fmt.Fprintf(w, "  why: %s\n  by node %s, on %s\n", why, m.Node, m.Start.Format(time.RFC3339))
		if m.Client != "" && !m.ByHand {
			request := strings.Join(strings.Fields(m.Method+" "+m.Host+m.Path), " ")
			fmt.Fprintf(w, "  request that crossed the threshold: %s\n", strings.TrimSpace("from "+m.Client+" "+request))
		}
		if !m.Ineffective {
			fmt.Fprintf(w, "  ends in %v; to end it now: edge mitigations lift %s\n", m.Remaining(), k.Key+again)
		}
	}
	for _, l := range k.Limits {
		switch {
		case k.Spared != "": // not counted
		case k.Unavailable:
			fmt.Fprintf(w, "  now: %s\n", l.Text)
		default:
			fmt.Fprintf(w, "  now: %s; %d more allowed\n", l.Text, l.Remaining)
		}
	}
	if k.Problem != "" {
		fmt.Fprintf(w, "  note: %s\n", k.Problem)
	}
}

// WriteText writes the list as text, in columns.
func (all *Mitigations) WriteText(w io.Writer) {
	fmt.Fprintln(w, "KEY\tENDS IN\tRULE\tACTION\tCOUNTED\tNODE\tWHY")
	for i := range all.Mitigations {
		m := &all.Mitigations[i]
		left, action, why := m.Remaining().String(), m.Action, m.Why
		switch {
		case m.Lifted:
			left, action, why = "-", "", "lifted"
		case m.Ineffective:
			why += " (not acted on under the current rules)"
		case m.ByHand:
			why = "by hand"
		}
		if m.State == logged {
			why += " (a dry run: not refused)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Key, left, m.RuleText(), cmp.Or(action, "-"),
			cmp.Or(m.About, m.Client, "-"), cmp.Or(m.Node, "-"), why)
	}
}

// RuleText returns the rule of the mitigation as text.
func (m *Mitigation) RuleText() string { return nameOf(m.Rule, m.Action, "-") }

// nameOf returns the name that operators see for a rule with an action, or unknown if the rule has no name.
func nameOf(rule, action, unknown string) string {
	if action == "deny" {
		return anyRuleName
	}
	return cmp.Or(rule, unknown)
}

// Remaining returns the time that is left, in whole seconds.
func (m *Mitigation) Remaining() time.Duration {
	return time.Duration(m.Left * float64(time.Second)).Round(time.Second)
}

// WriteText writes the result as text.
func (l *LiftedAll) WriteText(w io.Writer) {
	done := "lifted"
	if l.DryRun {
		done = "would be lifted"
	}
	fmt.Fprintf(w, "%s: %d\n", done, l.Mitigations)
	if l.Unknown > 0 {
		fmt.Fprintf(w, "not selected, because the node does not know their rule or client: %d\n", l.Unknown)
	}
}

// ByRule writes the sum of counts, and those of each rule.
func ByRule(counts map[string]int) string {
	total := 0
	var all []string
	for _, rule := range slices.Sorted(maps.Keys(counts)) {
		total += counts[rule]
		name := cmp.Or(rule, "unknown rule")
		if rule == anyRule {
			name = anyRuleName
		}
		all = append(all, fmt.Sprintf("%s %d", name, counts[rule]))
	}
	if total == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", total, strings.Join(all, ", "))
}

// WriteText writes the list as text, in columns.
func (all *Shards) WriteText(w io.Writer) {
	fmt.Fprintln(w, "SHARD\tSTATE\tIN THE RING\tKEYS")
	for _, s := range all.Shards {
		in := "yes"
		switch {
		case s.Drained:
			in = "no, drained"
		case !s.InRing:
			in = "no"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f%%\n", s.Addr, s.StateText(), in, 100*s.Share)
	}
}

// StateText returns the state of the shard in a word.
func (s *Shard) StateText() string {
	switch {
	case s.Down:
		return "down"
	case !s.Answers:
		return "unknown"
	}
	return "up"
}

// ClockText returns how far the node's clock is ahead, as text.
func (n *Node) ClockText() string {
	if n.ClockAhead == nil {
		return "-"
	}
	return fmt.Sprintf("%+d ms", int(math.Round(1000**n.ClockAhead)))
}

// WriteText writes the list as text, in columns.
func (all *Nodes) WriteText(w io.Writer) {
	fmt.Fprintln(w, "NODE\tSTATE\tVERSION\tRULES\tCLOCK\tREQUESTS\tREFUSED\tADDRESS\tDIFFERS IN")
	for _, n := range all.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.8s\t%s\t%.1f/s\t%.1f/s\t%s\t%s\n", n.Name, strings.ReplaceAll(n.State, "_", " "), cmp.Or(n.Version, "-"), n.Fingerprints["rules"],
			n.ClockText(), n.Requests, n.Refused, cmp.Or(n.Addr, "-"), cmp.Or(strings.Join(n.Differs, ", "), "-"))
	}
}

// WriteText writes the list as text, in columns.
func (all *Changes) WriteText(w io.Writer) {
	fmt.Fprintln(w, "TIME\tBY\tFROM\tCHANGE\tREASON\tERROR")
	for _, c := range all.Changes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Time.Format(time.RFC3339), c.By, cmp.Or(c.From, "-"),
			strings.TrimSpace(c.Do+" "+c.What), cmp.Or(c.Reason, "-"), cmp.Or(c.Error, "-"))
	}
}
