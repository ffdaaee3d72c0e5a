package prose

import (
	"strconv"
	"time"
)

// Units are the units of durations in files, the largest first.
var Units = [...]struct {
	Name string
	Is   time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

// AppendDuration appends d to dst in whole numbers of Units: 10s, 1h30m, 7d. d must not be negative.
func AppendDuration(dst []byte, d time.Duration) []byte {
	if d < time.Millisecond {
		return append(dst, '0')
	}
	for _, unit := range Units {
		if n := d / unit.Is; n > 0 {
			dst = append(strconv.AppendInt(dst, int64(n), 10), unit.Name...)
			d -= n * unit.Is
		}
	}
	return dst
}

// Duration returns d as AppendDuration writes it.
func Duration(d time.Duration) string { return string(AppendDuration(nil, d)) }
