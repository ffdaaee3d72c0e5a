package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/pop/setting"
)

func newHealthcheck() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck [URL]",
		Short: "Ask a node whether it is ready",
		Long: `Ask a node whether it is ready, and print its answer. The exit status is 0 if it is ready,
and 1 if it is not or does not answer. Use it as the health check of containers that have no
other program.

The URL is that of /readyz, or HOST:PORT of the node's --metrics-listen. By default it is
EDGE_METRICS_LISTEN if set, otherwise 127.0.0.1:9180, where nodes listen by default.`,
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
	define(cmd.Flags(), []setting.Setting{{Name: "timeout", Value: setting.Parsed("duration", &timeout, "2s", setting.Span(1, time.Hour)), Help: "maximum time for the answer"}})
	return cmd
}

// readiness returns the URL of /readyz for a URL or a listen address.
func readiness(given string) (string, error) {
	wrong := usageError{fmt.Errorf("%q is neither a URL nor HOST:PORT", given), "127.0.0.1:9180, or http://127.0.0.1:9180/readyz"}
	if !strings.Contains(given, "://") {
		host, port, err := net.SplitHostPort(given)
		if _, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil {
			return "", wrong
		}
		// A node that listens on all addresses is assumed to run on this machine.
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			host = "127.0.0.1"
			if ip.Is6() {
				host = "::1"
			}
		}
		given = "http://" + net.JoinHostPort(host, port)
	}
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", wrong
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/readyz"
	}
	return u.String(), nil
}

// maxDetail is the maximum number of bytes read from an answer.
const maxDetail = 64 << 10

// askReady queries target, writes its answer to out, and returns an error if it is not ready.
func askReady(ctx context.Context, out io.Writer, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	// Neither use a proxy from the environment nor follow redirects.
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("asking %s: %w", target, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDetail))
	if err != nil {
		return fmt.Errorf("asking %s: %w", target, err)
	}
	switch why, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n"); {
	case resp.StatusCode == http.StatusServiceUnavailable && why != "":
		return fmt.Errorf("%s answers %s: %s", target, resp.Status, why)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers %s", target, resp.Status)
	}
	_, err = out.Write(body)
	return err
}
