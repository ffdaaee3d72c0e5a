package conns_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/edgelimit/edge/proxy/conns"
)

func TestLogPanic(t *testing.T) {
	var log bytes.Buffer
	func() {
		defer conns.LogPanic(slog.New(slog.NewTextHandler(&log, nil)), "panic in a test")
		panic("out of order")
	}()
	for _, want := range []string{"panic in a test", "out of order", "conns_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q: %s", want, &log)
		}
	}
}
