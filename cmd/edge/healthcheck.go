package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/pop/setting"
)

func newHealthcheck() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck [HOST:PORT]",
		Short: "Ask a node whether it is ready",
		Long: `Ask a node whether it is ready, and print its response. The exit status is 0 if it is ready,
and 1 if it is not or does not respond. Use it as the health check of containers that have no
other program.

HOST:PORT is the node's --metrics-listen. By default it is EDGE_METRICS_LISTEN if set,
otherwise 127.0.0.1:9180, where nodes listen by default.`,
		Example: `  edge healthcheck
  edge healthcheck --timeout 500ms`,
		Args: func(cmd *cobra.Command, args []string) error { return noArgs(cmd, args[min(len(args), 1):]) },
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmp.Or(os.Getenv(variable("metrics-listen")), "127.0.0.1:9180")
			if len(args) > 0 {
				given = args[0]
			}
			target, err := readiness(given)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return askReady(ctx, cmd.OutOrStdout(), target)
		},
	}
	define(cmd.Flags(), []setting.Setting{{Name: "timeout", Value: setting.Parsed("duration", &timeout, "2s", setting.Span(1, time.Hour)), Help: "maximum time for the response"}})
	return cmd
}

// readiness returns the URL of /readyz for the address of a metrics listener.
func readiness(addr string) (string, error) {
	host, port, _ := net.SplitHostPort(addr)
	if !isHostPort(addr) {
		return "", usageError{fmt.Errorf("%q is not HOST:PORT", addr), "127.0.0.1:9180"}
	}
	// A node that listens on all addresses is assumed to run on this machine.
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz", nil
}

// askReady queries target, writes its answer to out, and returns an error if it is not ready.
func askReady(ctx context.Context, out io.Writer, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	// The request uses no proxy from the environment, and no redirect is followed.
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("asking %s: %w", target, err)
	}
	defer resp.Body.Close()
	const maxDetail = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDetail))
	if err != nil {
		return fmt.Errorf("asking %s: %w", target, err)
	}
	if resp.StatusCode != http.StatusOK {
		why, _, _ := strings.Cut(string(body), "\n")
		return fmt.Errorf("%s answers %s: %s", target, resp.Status, why)
	}
	return writePrintable(out, string(body))
}
