package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/setting"
)

// An operator sends requests to the API of a running node.
type operator struct {
	node, tokenFile string
	asJSON          bool
}

// register adds the flags of o to cmd, which it returns.
func (o *operator) register(cmd *cobra.Command) *cobra.Command {
	define(cmd.PersistentFlags(), []setting.Setting{
		{Name: "node", Value: setting.Text(&o.node, cmp.Or(os.Getenv("EDGE_NODE"), defaultNode), nil), Help: "`address` or URL of the node's admin listener; EDGE_NODE sets the default"},
		{Name: "token-file", Value: setting.Text(&o.tokenFile, "", nil), Help: "`file` with a token, instead of EDGE_TOKEN; not needed for this user's nodes on this machine"},
		{Name: "json", Value: setting.Bool(&o.asJSON, false), Help: "write JSON"},
	})
	return cmd
}

const defaultNode = "127.0.0.1:9190"

// again returns the flags that a printed command needs to reach the same node.
func (o *operator) again() (flags string) {
	if o.node != cmp.Or(os.Getenv("EDGE_NODE"), defaultNode) {
		flags += " --node " + shellQuote(o.node)
	}
	if o.tokenFile != "" {
		flags += " --token-file " + shellQuote(o.tokenFile)
	}
	return flags
}

// addr returns the address of the node, which may be given as the URL of its page.
func (o *operator) addr() (string, error) {
	addr := strings.TrimPrefix(o.node, "http://")
	if addr != o.node {
		addr, _, _ = strings.Cut(addr, "/")
	}
	if !isHostPort(addr) {
		return "", usageError{fmt.Errorf("--node: %q is not HOST:PORT or http://HOST:PORT", o.node), "--node 127.0.0.1:9190"}
	}
	return addr, nil
}

// isHostPort reports whether addr is HOST:PORT. The port is a number.
func isHostPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil
}

// readTime is the maximum time for a node's answer, longTime that for changes and for reading rules files.
const (
	readTime = 5 * time.Second
	longTime = 30 * time.Second
)

// token returns the token for the node at addr, or "".
func (o *operator) token(addr string) (string, error) {
	if o.tokenFile == "" {
		if token := os.Getenv("EDGE_TOKEN"); token != "" {
			return token, nil
		}
		return operate.LocalToken(addr), nil
	}
	text, err := setting.ReadSecret(o.tokenFile)
	fields := strings.Fields(text)
	if err == nil && len(fields) != 1 {
		err = fmt.Errorf("%s must contain a token and nothing else", o.tokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return fields[0], nil
}

// ask sends a request to the node and decodes its answer into result.
func (o *operator) ask(method, path string, params map[string]string, result any) error {
	addr, err := o.addr()
	if err != nil {
		return err
	}
	values := url.Values{}
	for name, value := range params {
		values.Set(name, value)
	}
	at := url.URL{Scheme: "http", Host: addr, Path: path, RawQuery: values.Encode()}
	most := readTime
	if method != http.MethodGet || path == "/api/v1/rules" {
		most = longTime
	}
	accepted := false
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { accepted = true }})
	req, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return fmt.Errorf("asking the node: %w", err)
	}
	token, err := o.token(addr)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if accepted && errors.Is(err, context.DeadlineExceeded) {
		return complaint.WithHint(fmt.Errorf("%s accepts connections, but has not answered for %v", o.node, most),
			"the node hangs or is overloaded: see its log and the state of its process")
	}
	if err != nil {
		return complaint.WithHint(fmt.Errorf("asking the node: %w", err), "--node is the address of its admin listener; nodes of 'edge pop' use ports 9191, 9192, …")
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<26))
	if err != nil {
		return fmt.Errorf("asking the node: %w", err)
	}
	object := bytes.HasPrefix(body, []byte("{")) // null would decode into any result
	if object && resp.StatusCode == http.StatusOK && json.Unmarshal(body, result) == nil {
		return nil
	}
	var failed struct{ Error string }
	if json.Unmarshal(body, &failed) != nil || failed.Error == "" {
		return complaint.WithHint(fmt.Errorf("%s is not a node's admin listener: it answers %s", o.node, resp.Status), "--node is the address of the admin listener, not the one for clients or metrics")
	}
	err = fmt.Errorf("node %s: %s", o.node, failed.Error)
	if resp.StatusCode == http.StatusUnauthorized {
		err = complaint.WithHint(err, "run this as the node's user or as root, or give a token that it knows in --token-file or EDGE_TOKEN")
	}
	return err
}

// show sends a request to the node and writes its answer; see render.
func show[T any](cmd *cobra.Command, o *operator, method, path string, params map[string]string, write func(*T, io.Writer)) error {
	result := new(T)
	if err := o.ask(method, path, params, result); err != nil {
		return err
	}
	return o.render(cmd, result, func(w io.Writer) { write(result, w) })
}

// render writes result, as JSON if requested, else in columns with write.
func (o *operator) render(cmd *cobra.Command, result any, write func(io.Writer)) error {
	if o.asJSON {
		return writeJSON(cmd.OutOrStdout(), result, "")
	}
	return columns(cmd.OutOrStdout(), write)
}

// columns aligns the cells that write prints, each of which ends with a tab, and copies them to out.
func columns(out io.Writer, write func(io.Writer)) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	write(t)
	_ = t.Flush() // writing to memory cannot fail
	return writePrintable(out, b.String())
}

// writePrintable writes lines, which may have text from clients, to a terminal, a file or a log.
func writePrintable(w io.Writer, lines string) error {
	_, err := io.WriteString(w, prose.Printable(lines, '\n', '\t'))
	return err
}
