package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/setting"
)

// listing returns a command that shows what a node answers to GET path.
func listing[T any](o *operator, use, short, long, path string, write func(*T, io.Writer)) *cobra.Command {
	return o.register(&cobra.Command{
		Use: use, Short: short, Long: long, Args: noCommand,
		Example: "  edge " + use + "\n  edge " + use + " --node 127.0.0.1:9191 --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return show(cmd, o, "GET", path, nil, write) },
	})
}

func newNodes() *cobra.Command {
	return listing(new(operator), "nodes", "List the nodes of a PoP", `List the nodes of a PoP as a running node knows them: whether they are ready, their versions and
rules, how far their clocks are ahead of that node's, how many requests they get and refuse per second
(measured every 5 seconds), and how they differ. Nodes that differ in secret, shards, rules
or client prefixes split the counts.`,
		"/api/v1/nodes", (*operate.Nodes).WriteText)
}

func newRules() *cobra.Command {
	return listing(new(operator), "rules", "Explain the rules that a node has loaded", `Explain the rules that a running node has loaded, as edge check does, with the keys that each mitigates
now, the requests that it refused on this node in the last hour, and what a reload would change. The
number of refused requests is updated every 5 seconds.`,
		"/api/v1/rules", func(all *operate.Rules, w io.Writer) {
			for _, r := range all.Rules {
				verb := "mitigates"
				if r.Action == "log" {
					verb = "would mitigate"
				}
				fmt.Fprintf(w, "%s\n%s\n  %s %d now; refused %d on this node in the last hour\n", r.Rule, prose.Paragraph(r.Text, 88, "  "), verb, r.Mitigations, r.LastHour)
			}
			switch f := all.Files; {
			case f == nil:
			case f.Error != "":
				fmt.Fprintf(w, "the files have an error, so they are not loaded: %s\n", f.Error)
			case f.Changed:
				fmt.Fprintf(w, "the files have changed; loading them frees %s\n", chart.Count(f.Frees, "mitigated client"))
			default:
				fmt.Fprintln(w, "the files have not changed since they were loaded")
			}
		})
}

func newChanges() *cobra.Command {
	return listing(new(operator), "changes", "List what operators have changed through a node", `List what operators have changed through a running node since it started, at most the last 500 changes:
lifts, mitigations by hand, drains and reloads, with the token's name and the reason. A reload without a token
is listed as SIGHUP, or as file if a file has changed. Each change is in the node's log, too, with all errors if it failed.`,
		"/api/v1/changes", (*operate.Changes).WriteText)
}

func newReload() *cobra.Command {
	var o operator
	var reason string
	cmd := o.register(&cobra.Command{
		Use:   "reload",
		Short: "Make a node reload its files, and wait until it has",
		Long: `Make a running node reload its rules, certificates, keys and tokens, and wait until it has. If
a file has an error, its previous version stays in force, and the command prints the error.
Nodes also load changed files on their own: within a second if a file was replaced, and within three
if it was written in place.`,
		Example: `  edge reload
  edge reload --reason "higher limits for the sale"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, &o, "POST", "/-/reload", map[string]string{"reason": reason}, func(r *operate.Reloaded, w io.Writer) {
				fmt.Fprintf(w, "loaded %s; this frees %s\n", chart.Count(r.Rules, "rule"), chart.Count(r.Frees, "mitigated client"))
			})
		},
	})
	define(cmd.Flags(), []setting.Setting{{Name: "reason", Value: setting.Text(&reason, "", nil), Help: "reason, for the node's log"}})
	return cmd
}
