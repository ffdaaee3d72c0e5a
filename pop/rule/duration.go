package rule

import (
	"time"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// An Error is an error in a rules file. It says where it is and what to do.
type Error = strictyaml.Error

// Errors are the errors in some rules files, in the order of the files and of their lines. If there are
// more than [strictyaml.MaxErrors], the last one says so instead.
type Errors = strictyaml.Errors

// ParseDuration parses whole numbers of days, hours, minutes and seconds, larger units first: 10s, 1m,
// 1h30m, 7d. A lone 0 needs no unit. Values of more than ten thousand days are refused.
func ParseDuration(s string) (time.Duration, error) { return strictyaml.ParseDuration(s, time.Second) }

// FormatDuration formats d as ParseDuration parses it, without fractions of a second. d must not be
// negative.
func FormatDuration(d time.Duration) string { return string(AppendDuration(nil, d)) }

// AppendDuration appends d to dst in the format of FormatDuration.
func AppendDuration(dst []byte, d time.Duration) []byte {
	return strictyaml.AppendDuration(dst, d.Truncate(time.Second))
}
