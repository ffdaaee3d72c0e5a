package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule/translate"
)

func newImport() *cobra.Command {
	return &cobra.Command{
		Use:   "import KIND FILE…",
		Short: "Translate the limits of nginx, ingress-nginx or Envoy into rules",
		Long: `Translate the rate limits of another program into a rules file. The kinds are

  nginx            limit_req_zone and limit_req, from nginx.conf and all files that it
                   includes
  ingress-nginx    annotations of Ingress manifests: limit-rps, global-rate-limit, …
  envoy-ratelimit  descriptors of envoyproxy/ratelimit, alone or in a ConfigMap

Comments on each rule say where it differs from the original. If a rule would count
more requests than the original, it only logs, and a comment says why. Limits that no rule can
express are listed at the end. If FILE is -, standard input is read.

Before you use the rules, let edge check explain them, and edge replay show which clients they
would have refused. See docs/import.md.`,
		Example: `  edge import nginx nginx.conf > imported.yaml
  edge import ingress-nginx ingress.yaml > rules.yaml
  edge import envoy-ratelimit ratelimit.yaml`,
		RunE: runImport,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return translate.Kinds(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
}

func runImport(cmd *cobra.Command, args []string) error {
	kinds := translate.Kinds()
	switch {
	case len(args) == 0:
		return usageError{errors.New("no kind given"), "the kinds are " + strings.Join(kinds, ", ")}
	case !slices.Contains(kinds, args[0]):
		return usageError{fmt.Errorf("unknown kind %q", args[0]), prose.Suggest(args[0], kinds)}
	case len(args) == 1:
		return usageError{errors.New("no file given"), fmt.Sprintf("edge import %s FILE", args[0])}
	case args[0] == "nginx" && len(args) > 2:
		return usageError{errors.New("nginx has one main file"), "import nginx.conf: the files that it includes are read, too"}
	}
	var files []translate.File
	for _, name := range args[1:] {
		file := name
		if name == "-" {
			name, file = "stdin", "/dev/stdin"
		}
		text, err := strictyaml.ReadFile(file)
		if err != nil {
			return err
		}
		files = append(files, translate.File{Name: name, Text: text})
	}
	t, err := translate.Files(args[0], files...)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(t.Text())
	return err
}
