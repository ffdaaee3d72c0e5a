package accesslog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// A line is a line of a trace: a time in seconds, and a client.
type line struct {
	Time   int64
	Client string
}

// files writes traces to files.
func files(t testing.TB, traces ...[]line) (names []string) {
	t.Helper()
	dir := t.TempDir()
	for i, trace := range traces {
		var text strings.Builder
		for _, line := range trace {
			fmt.Fprintf(&text, "%d\t%s\n", line.Time, line.Client)
		}
		name := filepath.Join(dir, fmt.Sprintf("%d.tsv", i))
		if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// short returns a client's name, abbreviated if it is long.
func short(c accesslog.Client) string { return strings.TrimRight(string(c[:]), "\x00") }

// read returns everything that l passes on, as arrivals or as entries.
func read(ctx context.Context, l *accesslog.Log, entries bool, got *[]line) error {
	if entries {
		return l.Entries(ctx, func(e *accesslog.Entry) error {
			*got = append(*got, line{e.Time / 1e6, short(accesslog.ClientOf(e.Client))})
			return nil
		})
	}
	return l.Arrivals(ctx, func(as []accesslog.Arrival) error {
		for _, a := range as {
			*got = append(*got, line{a.Time / 1e6, short(a.Client)})
		}
		return nil
	})
}

func open(t testing.TB, names []string, o accesslog.Options) *accesslog.Log {
	t.Helper()
	l, err := accesslog.Open(names, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// drawTrace draws lines whose times are out of order by at most late lines.
func drawTrace(rt *rapid.T, late int) (lines []line) {
	n := rapid.IntRange(0, 400).Draw(rt, "lines")
	step := rapid.SampledFrom([]int64{0, 1, 7}).Draw(rt, "step")
	for i := range n {
		back := rapid.IntRange(0, late).Draw(rt, "back")
		if rapid.IntRange(0, 9).Draw(rt, "in order") > 0 {
			back = 0
		}
		lines = append(lines, line{1_500_000_000 + int64(max(0, i-back))*step, fmt.Sprint("client", i, strings.Repeat("x", i%20))})
	}
	return lines
}

// Entries come in the order of a stable sort, however far the lines are out of order, with blocks of any size and
// any number of workers.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		late := rapid.SampledFrom([]int{0, 3, 50, 99, 1000}).Draw(rt, "late")
		lines := drawTrace(rt, late)
		split := rapid.IntRange(0, len(lines)).Draw(rt, "split")
		names := files(t, lines[:split], lines[split:])
		o := accesslog.Options{
			Format:  "trace",
			Workers: rapid.IntRange(1, 4).Draw(rt, "workers"),
			Buffer:  rapid.SampledFrom([]int{1, 10, 100, 1000}).Draw(rt, "buffer"),
			Disk:    rapid.Bool().Draw(rt, "disk"),
			TempDir: t.TempDir(),
		}.WithBlocks(rapid.SampledFrom([]int{40, 300, 100_000}).Draw(rt, "block"))
		var got []line
		l := open(t, names, o)
		entries := rapid.Bool().Draw(rt, "entries")
		err := read(t.Context(), l, entries, &got)
		if tooLate := new(accesslog.OrderError); errors.As(err, &tooLate) {
			if late < o.Buffer || o.Disk {
				rt.Errorf("lines that are at most %d late are too late for a buffer of %d", late, o.Buffer)
			}
			got, o.Disk = nil, true
			l = open(t, names, o)
			err = read(t.Context(), l, entries, &got)
		}
		if err != nil {
			rt.Fatal(err)
		}
		if n := l.Stats().Entries; n != int64(len(lines)) {
			rt.Errorf("%d entries, want %d", n, len(lines))
		}
		want := slices.Clone(lines)
		for i := range want {
			want[i].Client = short(accesslog.ClientOf(want[i].Client))
		}
		sort.SliceStable(want, func(i, j int) bool { return want[i].Time < want[j].Time })
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Errorf("order (-want +got):\n%s", diff)
		}
		if left, err := os.ReadDir(o.TempDir); err != nil || len(left) > 0 {
			rt.Errorf("left in the temporary directory: %v, %v", left, err)
		}
	})
}

// Lines that are late by almost the size of the buffer are sorted without a second pass.
func TestOrderWithinBuffer(t *testing.T) {
	for back := 80; back <= 100; back++ {
		var lines []line
		for i := range 1000 {
			next := line{1_500_000_000 + int64(i), fmt.Sprint(i)}
			if i >= back && i%37 == 0 {
				next.Time -= int64(back)
			}
			lines = append(lines, next)
		}
		o := accesslog.Options{Format: "trace", Buffer: 100}.WithBlocks(40)
		var got []line
		if err := read(t.Context(), open(t, files(t, lines), o), back%2 == 0, &got); err != nil {
			t.Fatalf("%d lines late: %v", back, err)
		}
		sort.SliceStable(lines, func(i, j int) bool { return lines[i].Time < lines[j].Time })
		if diff := cmp.Diff(lines, got); diff != "" {
			t.Errorf("%d lines late (-want +got):\n%s", back, diff)
		}
	}
}

// late returns a trace whose last line belongs before its first.
func late(n int) []line {
	lines := []line{}
	for i := range n {
		lines = append(lines, line{1_500_000_000 + int64(i), fmt.Sprint(i)})
	}
	return append(lines, line{1_400_000_000, "late"})
}

func TestTooLate(t *testing.T) {
	o := accesslog.Options{Format: "trace", Buffer: 10}.WithBlocks(100)
	for _, test := range []struct {
		name  string
		stdin bool
	}{{"from a file", false}, {"from a pipe", true}} {
		t.Run(test.name, func(t *testing.T) {
			names := files(t, late(100))
			l := open(t, names, o)
			if test.stdin {
				f, err := os.Open(names[0])
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if l, err = accesslog.Open([]string{"-"}, f, o); err != nil {
					t.Fatal(err)
				}
			}
			err := l.Arrivals(t.Context(), func([]accesslog.Arrival) error { return nil })
			var order *accesslog.OrderError
			if !errors.As(err, &order) {
				t.Fatalf("error %v, want an OrderError", err)
			}
			if order.Again == test.stdin || order.By < 1157*24*time.Hour || order.Buffer != 10 {
				t.Errorf("got %+v", *order)
			}
		})
	}
}

// An error from the callback ends the pass, and no temporary file is left.
func TestStop(t *testing.T) {
	stop := errors.New("enough")
	for _, disk := range []bool{false, true} {
		o := accesslog.Options{Format: "trace", Buffer: 10, Disk: disk, TempDir: t.TempDir()}.WithBlocks(100)
		l := open(t, files(t, late(10_000)[:10_000]), o)
		if err := l.Arrivals(t.Context(), func([]accesslog.Arrival) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("error %v, want %v", err, stop)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := l.Arrivals(ctx, func([]accesslog.Arrival) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		if left, err := os.ReadDir(o.TempDir); err != nil || len(left) > 0 {
			t.Errorf("left in the temporary directory: %v, %v", left, err)
		}
	}
}
