package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/edgelimit/edge/internal/tick"
	"github.com/edgelimit/edge/load"
)

// A progressLine is a line of a terminal that shows progress. The zero value shows nothing.
type progressLine struct{ terminal *os.File }

// newProgressLine returns a line that shows progress on w if wanted and w is a terminal.
func newProgressLine(wanted bool, w io.Writer) progressLine {
	if file, ok := w.(*os.File); ok && wanted && term.IsTerminal(int(file.Fd())) {
		return progressLine{file}
	}
	return progressLine{}
}

const clearLine = "\r\x1b[K"

// show replaces the text of the line.
func (l progressLine) show(text string) {
	columns, _, err := term.GetSize(int(l.terminal.Fd()))
	if err != nil || columns < 1 {
		columns = 80
	}
	fmt.Fprint(l.terminal, clearLine+text[:min(len(text), columns-1)]) // a line that wraps could not be replaced
}

// end erases the line.
func (l progressLine) end() {
	if l.terminal != nil {
		fmt.Fprint(l.terminal, clearLine)
	}
}

// ofLoad returns a function that shows the progress of a load, or nil if nothing is shown.
func (l progressLine) ofLoad() func(load.Progress) {
	if l.terminal == nil {
		return nil
	}
	var before load.Progress
	return func(p load.Progress) {
		elapsed := p.Elapsed.Round(time.Second).String()
		if p.Of < unbounded {
			elapsed += "/" + p.Of.Round(time.Second).String()
		}
		l.show(fmt.Sprintf("%s: %d sent, %d/s, %d refused, %d failed, %d waiting, p50 %.1f, p99 %.1f ms", elapsed, p.Requests,
			(p.Requests-before.Requests)*uint64(load.ProgressesPerSecond), p.Refused, p.Failed, p.Waiting, float64(p.P50)/1e3, float64(p.P99)/1e3))
		before = p
	}
}

// reading shows the progress of reading until stop is called. total is 0 if it is not known.
func (l progressLine) reading(progress func() (read, total int64)) (stop func()) {
	if l.terminal == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	start := time.Now()
	show := func() {
		read, total := progress()
		text := fmt.Sprintf("%v: %d MB read", time.Since(start).Round(time.Second), read/1e6)
		if total > 0 {
			text += fmt.Sprintf(", %d%% of %d MB", 100*read/total, total/1e6)
		}
		l.show(text)
	}
	show()
	var wg sync.WaitGroup
	wg.Go(func() { tick.Every(ctx, 200*time.Millisecond, show) })
	return func() {
		cancel()
		wg.Wait()
		l.end()
	}
}
