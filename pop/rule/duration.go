package rule

import (
	"time"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// An Error says what is wrong with a rules file, where, and what to do.
type Error = strictyaml.Error

// Errors are what is wrong with some rules files, in the order of the files and of their lines. Of
// many only the first are kept, and the last one says so.
type Errors = strictyaml.Errors

// ParseDuration reads whole numbers of days, hours, minutes and seconds, the larger units first:
// 10s, 1m, 1h30m, 7d. A lone 0 needs no unit. Numbers of more than ten thousand days are refused.
func ParseDuration(s string) (time.Duration, error) { return strictyaml.ParseDuration(s, time.Second) }

// FormatDuration writes d as ParseDuration reads it. It leaves out fractions of a second; d is not
// negative.
func FormatDuration(d time.Duration) string { return string(AppendDuration(nil, d)) }

// AppendDuration appends FormatDuration's text to dst.
func AppendDuration(dst []byte, d time.Duration) []byte {
	return strictyaml.AppendDuration(dst, d.Truncate(time.Second))
}
