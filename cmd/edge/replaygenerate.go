package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/load/mix"
)

// generateFlags configures the log to write.
type generateFlags struct {
	set      *pflag.FlagSet
	mix      string
	seed     uint64
	requests uint64
	format   string
	fraction bool
	over     []string
}

func (f *generateFlags) flags() *pflag.FlagSet {
	f.set = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.set.StringVar(&f.mix, "generate", "", "write the log of a `mix`: a file, or one of "+strings.Join(mix.Names(), ", "))
	f.set.Uint64Var(&f.seed, "seed", 0, "seed to use instead of the mix's own")
	f.set.Uint64Var(&f.requests, "requests", 0, "stop after this `number` of requests")
	f.set.StringVar(&f.format, "generate-format", mix.FormatNames()[0], strings.Join(mix.FormatNames(), ", "))
	f.set.BoolVar(&f.fraction, "fraction", false, "write times of a trace with six decimals")
	f.set.StringSliceVar(&f.over, "over", nil, "`files` of a log: write it as JSON, with the attacks of the mix added and marked")
	return f.set
}

// write writes the log of a mix, or lays its attacks over other logs. in configures how those are read.
func (f *generateFlags) write(ctx context.Context, files []string, in *inputFlags, stdout, stderr io.Writer) error {
	if len(files) > 0 {
		return usageError{fmt.Errorf("--generate reads no log, but %q is one", files[0]), "edge replay --generate " + f.mix + " > access.log; to add an attack to a log: --over"}
	}
	format, err := mix.ParseFormat(f.format)
	if err != nil {
		return fail("generate-format", "", "%s", message(err))
	}
	m, err := mix.Load(f.mix)
	if err != nil {
		return err
	}
	if f.set.Changed("seed") {
		m.Seed = f.seed
	}
	if f.set.Changed("requests") {
		if m.Requests = f.requests; f.requests == 0 {
			return fail("requests", "", "must be at least 1")
		}
	}
	if len(f.over) > 0 {
		return f.lay(ctx, m, in, stdout, stderr)
	}
	_, err = mix.Write(stdout, m, mix.WriteOptions{Format: format, Fraction: f.fraction})
	return err
}
