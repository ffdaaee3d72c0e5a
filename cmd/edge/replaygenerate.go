package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop/setting"
)

// generateFlags configures the log to write.
type generateFlags struct {
	set      *pflag.FlagSet
	mix      string
	seed     uint64
	requests uint64
	format   mix.Format
	over     []string
}

func (f *generateFlags) flags() *pflag.FlagSet {
	names := mix.FormatNames()
	f.set = flagSet([]setting.Setting{
		{Name: "generate", Value: setting.Text(&f.mix, "", nil), Help: "write the log of a `mix`: a file, or one of " + strings.Join(mix.Names(), ", ")},
		{Name: "seed", Value: setting.Parsed("number", &f.seed, "", setting.Whole[uint64](0, math.MaxUint64)), Help: "seed to use instead of the mix's own"},
		{Name: "requests", Value: setting.Parsed("number", &f.requests, "", setting.Whole[uint64](1, math.MaxUint64)), Help: "stop after this `number` of requests"},
		{Name: "generate-format", Value: setting.Parsed("format", &f.format, names[0], quotingOnce(mix.ParseFormat)), Help: strings.Join(names, ", ")},
		{Name: "over", Value: setting.List(&f.over, nil), Help: "`files` of a log: write it as JSON, with the attacks of the mix added and marked"},
	})
	return f.set
}

// write writes the log of a mix, or lays its attacks over other logs. in configures how those are read.
func (f *generateFlags) write(ctx context.Context, files []string, in *inputFlags, stdout, stderr io.Writer) error {
	if len(files) > 0 {
		return usageError{fmt.Errorf("--generate reads no log, but %q is one", files[0]), "edge replay --generate " + f.mix + " > access.log; to add an attack to a log: --over"}
	}
	m, err := mix.Load(f.mix)
	if err != nil {
		return err
	}
	if f.set.Changed("seed") {
		m.Seed = f.seed
	}
	if f.set.Changed("requests") {
		m.Requests = f.requests
	}
	if len(f.over) > 0 {
		return f.lay(ctx, m, in, stdout, stderr)
	}
	_, err = mix.Write(stdout, m, f.format)
	return err
}
