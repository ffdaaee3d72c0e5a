package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/accuracy"
	"github.com/edgelimit/edge/analysis/reading"
	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/version"
)

func newReplayAccuracyMerge() *cobra.Command {
	var out reporter
	cmd := &cobra.Command{
		Use:   "merge PART…",
		Short: "Make a report from the parts of one log",
		Long: `Merge the output of all parts of 'edge replay accuracy --part' into the report of a single run.
All parts must come from the same log and be made with the same flags and version.`,
		Example: `  edge replay accuracy merge part-*.json
  edge replay accuracy merge --html accuracy.html part-*.json`,
		RunE: func(cmd *cobra.Command, files []string) error { return mergeParts(cmd, files, &out) },
	}
	define(cmd.Flags(), out.settings())
	return cmd
}

// A partFile is the output of edge replay accuracy --part.
type partFile struct {
	Version string          `json:"version"`
	Log     accesslog.Stats `json:"log"`
	accuracy.Part
}

func mergeParts(cmd *cobra.Command, files []string, out *reporter) error {
	if len(files) == 0 {
		return usageError{errors.New("no part given"), firstExample(cmd)}
	}
	var read []partFile
	var parts []*accuracy.Part
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var p partFile
		if err := json.Unmarshal(text, &p); err != nil || p.Share == (accuracy.Share{}) {
			return complaint.WithHint(fmt.Errorf("%s is not a part of a report", name), "write each part with 'edge replay accuracy --part', as in --part 3/16")
		}
		if p.Version != version.String() {
			return complaint.WithHint(fmt.Errorf("%s is from version %s, and this is %s", name, p.Version, version.String()), "make all parts, and merge them, with the same version")
		}
		read, parts = append(read, p), append(parts, &p.Part)
	}
	whole, err := accuracy.Merge(parts)
	if err != nil {
		return err
	}
	if err := out.open(cmd.OutOrStdout()); err != nil {
		return err
	}
	return out.emit(reading.Names(read[0].Log), read[0].Log, whole.Document(parts[0].Traffic))
}
