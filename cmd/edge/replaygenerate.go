package main

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop/setting"
)

func newReplayGenerate() *cobra.Command {
	var g generator
	cmd := &cobra.Command{
		Use:   "generate MIX",
		Short: "Write a generated log, or add attacks to a log",
		Long: `Write the log of a mix: a file, or one of ` + strings.Join(mix.Names(), ", ") + `. Each run
writes the same log.

With --over, write the requests of a log as JSON, add the attacks of the mix, and mark them with
the field attack: see docs/attacks.md.`,
		Example: `  edge replay generate attack --requests 1000 > access.log
  edge replay generate web --requests 10000 | edge replay accuracy -
  edge replay generate attack --over access.log > attacked.log`,
		Args: takes("one mix; --over adds its attacks to a log"),
		RunE: g.run,

		ValidArgsFunction: cobra.FixedCompletions(mix.Names(), cobra.ShellCompDirectiveDefault),
	}
	own := []setting.Setting{
		{Name: "seed", Value: setting.Parsed("number", &g.seed, "", setting.Whole[uint64](0, math.MaxUint64)), Help: "seed to use instead of the mix's own"},
		{Name: "requests", Value: setting.Parsed("number", &g.requests, "", setting.Whole[uint64](1, math.MaxUint64)), Help: "stop after this `number` of requests"},
		{Name: "output-format", Value: oneOf(&g.format, mix.Formats()...), Help: "`format` of the log: " + prose.EnumerateAll(mix.Formats(), "or"), Contradicts: "over"},
		{Name: "over", Value: setting.List(&g.over, nil), Help: "`files` of a log to which the attacks are added", Sample: "access.log"},
	}
	define(cmd.Flags(), append(own, append(g.in.settings("over"), progressSetting(&g.in.progress))...))
	return cmd
}

// A generator writes the log of a mix, or adds its attacks to other logs.
type generator struct {
	in       inputFlags
	seed     uint64
	requests uint64
	format   string
	over     []string
}

func (g *generator) run(cmd *cobra.Command, args []string) error {
	m, err := mix.Load(args[0], 0)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("seed") {
		m.Seed = g.seed
	}
	m.Requests = cmp.Or(g.requests, m.Requests)
	if len(g.over) > 0 {
		return g.overlay(cmd, m)
	}
	_, err = mix.Write(cmd.OutOrStdout(), m, g.format)
	return err
}

// overlay writes the logs of --over, with the attacks of m.
func (g *generator) overlay(cmd *cobra.Command, m *mix.Mix) error {
	if i := slices.IndexFunc(g.over, isPipe); i >= 0 {
		return fail("over", "write it to a file first", "%s can be read only once", g.over[i])
	}
	ctx := cmd.Context()
	var o *mix.Overlay
	err := g.in.read(cmd, g.over, accesslog.All, func(log *input) error {
		o = mix.NewOverlay(cmd.OutOrStdout())
		return log.entries(ctx, o.Survey)
	})
	if err != nil {
		return err
	}
	late, err := o.Begin(m)
	if err != nil {
		return err
	}
	if late {
		report(cmd.ErrOrStderr(), errors.New("the attack begins after the end of the log"))
	}
	log, err := g.in.open(cmd, g.over, accesslog.All)
	if err != nil {
		return err
	}
	defer log.log.Close()
	if err := log.entries(ctx, o.Add); err != nil {
		return err
	}
	return o.End()
}
