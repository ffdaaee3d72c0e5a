package main

import (
	"context"
	"errors"
	"net/url"
	"testing"
)

func TestNotAnswered(t *testing.T) {
	for cause, want := range map[error]string{
		context.DeadlineExceeded:         "the node at 192.0.2.1:9190 does not answer within 30s",
		errors.New("connection refused"): "asking the node: connection refused",
	} {
		if err := notAnswered("192.0.2.1:9190", &url.Error{Op: "Get", URL: "http://192.0.2.1:9190/", Err: cause}); err.Error() != want {
			t.Errorf("notAnswered(%v) = %q, want %q", cause, err, want)
		}
	}
}
