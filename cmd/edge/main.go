// Command edge is a rate limiter for the edge of a network: a node of a point of presence
// (PoP), a whole PoP on one machine, and the tools around them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/version"
	"github.com/edgelimit/edge/pop"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes the command and returns its exit code: 0, 1 for a failure or a negative
// answer, 2 for a mistake in the command line or the settings.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	reported := lograte.NewBacklog(stderr) // a stalled reader of stderr must not keep the process alive
	report(reported, err)
	go reported.Run(slog.New(slog.DiscardHandler))
	reported.Stop()
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "edge COMMAND [flags]",
		Short: "A rate limiter for the edge of a network",
		Long: `A rate limiter for the edge of a network. Nodes count each client's requests together in
memcached, without delaying any request, and refuse clients that exceed a rule, from memory.
Each node has a page for operators: http://127.0.0.1:9190/ (nodes of edge pop: ports 9191, 9192, …).`,
		Example: `  edge pop
  edge check rules.yaml
  edge node --rules rules.yaml --origin http://127.0.0.1:3000`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: readFlags,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("edge {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	root.AddCommand(
		newNode(runNode), newPop(runPop), newShard(runShard), newCheck(), newReplay(), newLoad(), newMitigations(), newExplain(),
		newStatus(), newNodes(), newRules(), newShards(), newChanges(), newReload(), newImport(), newHealthcheck(), newVersion(), newMan())
	// By default, Execute adds these commands. Adding them now lets edge explain mistakes in their arguments as for
	// other commands.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Long, help.Args = "", func(_ *cobra.Command, args []string) error {
		about, rest, _ := root.Find(args)
		return noCommand(about, rest)
	}
	completion, _, _ := root.Find([]string{"completion"})
	completion.RunE = root.RunE
	for _, c := range append(completion.Commands(), completion) {
		c.Args = noCommand
	}
	complete(root)
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "edge %s\n", version.String())
			return err
		},
	}
}

// noCommand returns an error for arguments in place of a subcommand.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if len(names) == 0 {
		return noArgs(cmd, args)
	}
	return usageError{fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]), prose.Suggest(args[0], names)}
}

// noArgs returns an error if there are arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := seeHelp(cmd)
	if cmd.Flags().Lookup("config") != nil && filepath.Ext(args[0]) == ".yaml" {
		hint = "--rules names rules files, --config a file of settings"
	}
	cmd.Flags().Visit(func(f *pflag.Flag) { // the last flag before the argument, if it takes a value only after a =
		if v, ok := f.Value.(*flagValue); ok && f.NoOptDefVal != "" && v.row.Set(args[:1]) == nil {
			hint = fmt.Sprintf("--%s=%s", f.Name, args[0])
		}
	})
	return usageError{fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), args[0]), hint}
}

// takes returns a check that there is exactly one argument, which what describes.
func takes(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return usageError{fmt.Errorf("%s takes %s", cmd.CommandPath(), what), firstExample(cmd)}
	}
}

func firstExample(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(cmd.Example, "\n")
	return strings.TrimSpace(line)
}

func seeHelp(cmd *cobra.Command) string { return fmt.Sprintf("see '%s --help'", cmd.CommandPath()) }

// flagError explains an error about a flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		name, dashes := unknown.GetSpecifiedName(), "--"
		meant := prose.Meant("--"+name, names)
		hints := counterparts[cmd.Name()]
		hint := hints[name]
		if given := unknown.GetSpecifiedShortnames(); given != "" { // -config, whose c is unknown, or only -c
			letters, _, _ := strings.Cut(given, "=")
			name, dashes, hint = cmp.Or(letters, name), "-", cmp.Or(hints[letters], hint)
			begins := func(flag string) bool { return strings.HasPrefix(flag, "--"+name) }
			if first := slices.IndexFunc(names, begins); first >= 0 {
				meant = "did you mean " + names[first] + "?"
			}
		}
		hint = cmp.Or(hint, elsewhere(cmd, name), meant, seeHelp(cmd))
		return usageError{fmt.Errorf("unknown flag %s%s", dashes, name), hint}
	case errors.As(err, &missing):
		return usageError{fmt.Errorf("--%s needs a value", missing.GetFlag().Name), seeHelp(cmd)}
	}
	return usageError{err, seeHelp(cmd)}
}

// elsewhere returns a hint if the commands below cmd have a name or a flag that cmd does not have, or "".
func elsewhere(cmd *cobra.Command, flag string) string {
	var paths []string
	for _, c := range cmd.Commands() {
		if c.Name() == flag {
			return "use the command " + c.UseLine()
		}
		if c.Flags().Lookup(flag) != nil {
			paths = append(paths, c.CommandPath())
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return "it is a flag of " + prose.Enumerate(paths, "and")
}

// untilSignal returns a context that is done at the first SIGINT or SIGTERM. A second signal ends the process.
func untilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals) // before ctx is done
		cancel()
	}()
	return ctx, cancel
}

// A usageError is a mistake in the command line or the settings.
type usageError struct {
	error
	hint string // may be empty
}

func (e usageError) Unwrap() error { return e.error }

// report writes the errors in err.
func report(w io.Writer, err error) { _ = complaint.Write(w, err, hintOf) } // there is nobody to tell

// hintOf returns the hint of err, or "".
func hintOf(err error) string {
	var usage usageError
	var socket *net.OpError
	hint := prose.Hint(err)
	switch {
	case hint != "":
		return hint
	case errors.As(err, &usage):
		return usage.hint
	case errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &socket) && socket.Net == "unix":
		return "the socket is in use: stop the other program, or choose another path"
	case errors.Is(err, syscall.EADDRINUSE):
		return "the address is in use: stop the other program, or choose another address (port 0: any free one)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine does not have that address; use 0.0.0.0 or :PORT for all of its addresses"
	case errors.Is(err, syscall.EACCES) && errors.As(err, &socket) && socket.Net != "unix":
		return "ports below 1024 need root or CAP_NET_BIND_SERVICE"
	case errors.Is(err, syscall.EACCES):
		return "check the permissions of the file"
	case errors.Is(err, pop.ErrCutOff):
		return "--drain-timeout allows more time"
	}
	return ""
}
