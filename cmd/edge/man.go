package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/version"
)

// newMan returns the command that writes the manual pages, for packages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages",
		Hidden: true,
		Args:   takes("a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeMan(cmd.Root(), args[0])
		},
	}
}

// writeMan writes the manual pages of cmd and its subcommands to dir.
func writeMan(cmd *cobra.Command, dir string) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manPage(cmd, name)), 0o644); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			if err := writeMan(c, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// manPage returns the manual page of cmd, which is its help, in the macros of man(7).
func manPage(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup("name"); f != nil {
		f.DefValue = "" // the name of the machine that builds the package
	}
	help := strings.TrimSpace(cmd.Long + "\n\n" + cmd.UsageString())
	return fmt.Sprintf(".TH %s 1 \"\" %q \"User Commands\"\n", strings.ToUpper(name), "edge "+strings.Fields(version.String())[0]) +
		fmt.Sprintf(".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short)) +
		fmt.Sprintf(".SH DESCRIPTION\n.nf\n%s\n.fi\n", roff(help)) +
		".SH SEE ALSO\nhttps://github.com/edgelimit/edge\n"
}

// troffRequest matches the first character of a line that troff would read as a request.
var troffRequest = regexp.MustCompile(`(?m)^[.']`)

// roff escapes text so that no line is a request and hyphens are preserved.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	return troffRequest.ReplaceAllString(text, `\&$0`)
}
