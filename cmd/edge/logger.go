package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
)

// logging configures a node's log.
type logging struct {
	format string
	level  slog.Level
}

func (l *logging) settings() []setting.Setting {
	return []setting.Setting{
		{Name: "log-format", Help: "text, or json with durations in seconds", Value: oneOf(&l.format, "text", "json")},
		{Name: "log-level", Help: "lowest level that is logged: debug, info, warn or error", Value: setting.Parsed("text", &l.level, "info", func(text string) (level slog.Level, err error) {
			if level.UnmarshalText([]byte(text)) != nil {
				err = errors.New("must be debug, info, warn or error")
			}
			return level, err
		}).Choices("debug", "info", "warn", "error")},
	}
}

// start sets o's logger, which writes to w without waiting for it. stop must be called when the node has stopped.
func (l *logging) start(w io.Writer, o *pop.Options) (stop func()) {
	b := lograte.NewBacklog(w)
	o.Logger, o.AddMetrics = l.logger(b), func(to prometheus.Registerer) { to.MustRegister(b.Dropped) }
	go b.Run(o.Logger)
	return b.Stop
}

// logger returns a logger that writes to w.
func (l *logging) logger(w io.Writer) *slog.Logger {
	if l.format == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l.level, ReplaceAttr: plainJSON}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l.level, ReplaceAttr: plainError}))
}

// plainError writes errors as users see them.
func plainError(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(prose.Message(err))
	}
	return a
}

// plainJSON writes durations in seconds, and values that have a String method as text.
func plainJSON(groups []string, a slog.Attr) slog.Attr {
	a = plainError(groups, a)
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	if named, ok := a.Value.Any().(fmt.Stringer); ok && a.Value.Kind() == slog.KindAny {
		a.Value = slog.StringValue(named.String())
	}
	return a
}
