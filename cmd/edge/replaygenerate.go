package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/load/mix"
)

// generateFlags say what log is written.
type generateFlags struct {
	set      *pflag.FlagSet
	seed     uint64
	requests uint64
	format   string
	fraction bool
}

func (f *generateFlags) register(flags *pflag.FlagSet) {
	f.set = flags
	flags.Uint64Var(&f.seed, "seed", 0, "with --generate: another seed than that of the mix")
	flags.Uint64Var(&f.requests, "requests", 0, "with --generate: end after so many")
	flags.StringVar(&f.format, "generate-format", mix.FormatNames()[0], "with --generate: "+strings.Join(mix.FormatNames(), ", "))
	flags.BoolVar(&f.fraction, "fraction", false, "with --generate: times of a trace have six decimals")
}

// write writes the log of a mix.
func (f *generateFlags) write(spec string, files []string, stdout io.Writer) error {
	if len(files) > 0 {
		return usageError{fmt.Errorf("--generate reads no log, and %q is one", files[0]), "edge replay --generate " + spec + " > access.log"}
	}
	format, err := mix.ParseFormat(f.format)
	if err != nil {
		return fail(f.set, "generate-format", "", "%s", message(err))
	}
	m, err := mix.Load(spec)
	if err != nil {
		return err
	}
	if f.set.Changed("seed") {
		m.Seed = f.seed
	}
	if f.set.Changed("requests") {
		if m.Requests = f.requests; f.requests == 0 {
			return fail(f.set, "requests", "", "a log of no requests is none")
		}
	}
	_, err = mix.Write(stdout, m, mix.WriteOptions{Format: format, Fraction: f.fraction})
	return err
}
