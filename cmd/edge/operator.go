package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/setting"
)

// An operator sends requests to the API of a running node.
type operator struct {
	node, tokenFile string
	asJSON          bool
}

func (o *operator) register(cmd *cobra.Command) {
	define(cmd.PersistentFlags(), []setting.Setting{
		{Name: "node", Value: setting.Text(&o.node, "127.0.0.1:9190", nil), Help: "`address` of the node's admin listener"},
		{Name: "token-file", Value: setting.Text(&o.tokenFile, "", nil), Help: "`file` with a token, instead of EDGE_TOKEN; not needed for this user's nodes on this machine"},
		{Name: "json", Value: setting.Bool(&o.asJSON, false), Help: "write JSON"},
	})
}

var operatorClient = &http.Client{Timeout: 30 * time.Second}

// token returns the token for the node at addr, or "".
func (o *operator) token(addr string) (string, error) {
	if o.tokenFile == "" {
		if token := os.Getenv("EDGE_TOKEN"); token != "" {
			return token, nil
		}
		return admin.LocalToken(addr), nil
	}
	text, err := os.ReadFile(o.tokenFile)
	fields := strings.Fields(string(text))
	if err == nil && len(fields) != 1 {
		err = fmt.Errorf("%s must contain a token and nothing else", o.tokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return fields[0], nil
}

// call sends a request to the node and returns its answer.
func (o *operator) call(method, path string, values url.Values) ([]byte, error) {
	base := o.node
	isURL := strings.Contains(base, "://")
	if !isURL {
		base = "http://" + base
	}
	at, err := url.Parse(base)
	if err != nil || at.Host == "" || !isURL && at.Port() == "" {
		return nil, usageError{fmt.Errorf("--node: %q is not HOST:PORT", o.node), "--node 127.0.0.1:9190"}
	}
	at = at.JoinPath(path)
	at.RawQuery = values.Encode()
	req, err := http.NewRequest(method, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking the node: %w", err)
	}
	token, err := o.token(at.Host)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := operatorClient.Do(req)
	if err != nil {
		return nil, notAnswered(at.Host, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<26))
	if err != nil {
		return nil, fmt.Errorf("asking the node: %w", err)
	}
	var failed struct{ Error string }
	switch err := json.Unmarshal(body, &failed); {
	case err == nil && resp.StatusCode == http.StatusOK:
		return body, nil
	case err != nil || failed.Error == "":
		return nil, hintedError{fmt.Errorf("%s is not a node's admin listener: it answers %s", o.node, resp.Status), "--node is the address of the admin listener, not the one for clients or metrics"}
	}
	err = fmt.Errorf("the node says: %s", failed.Error)
	switch {
	case resp.StatusCode != http.StatusUnauthorized:
	case token == "":
		err = hintedError{err, "run this as the node's user or as root, or give --token-file or EDGE_TOKEN"}
	case o.tokenFile != "":
		err = hintedError{err, "the node does not know the token in " + o.tokenFile}
	case os.Getenv("EDGE_TOKEN") != "":
		err = hintedError{err, "the node does not know the token in EDGE_TOKEN"}
	}
	return nil, err
}

// notAnswered explains an error of operatorClient.
func notAnswered(host string, err error) error {
	if os.IsTimeout(err) {
		return hintedError{fmt.Errorf("the node at %s does not answer within %v", host, operatorClient.Timeout), "it may be overloaded, suspended or behind a firewall: see its log and the load of its machine"}
	}
	return hintedError{fmt.Errorf("asking the node: %w", errors.Unwrap(err)), "--node is the address of its admin listener; nodes of 'edge pop' use ports 9191, 9192, …"}
}

// ask sends a request to the node and decodes its answer into result.
func (o *operator) ask(method, path string, values url.Values, result any) error {
	body, err := o.call(method, path, values)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, result); err != nil {
		return fmt.Errorf("the node's answer: %w", err)
	}
	return nil
}

// show sends a request to the node and writes its answer, as JSON if requested, or else with write.
func show[T any](cmd *cobra.Command, o *operator, method, path string, values url.Values, write func(io.Writer, *T) error) error {
	body, err := o.call(method, path, values)
	if err != nil {
		return err
	}
	if o.asJSON {
		_, err = cmd.OutOrStdout().Write(body)
		return err
	}
	result := new(T)
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(result); err != nil {
		return fmt.Errorf("the node's answer: %w", err)
	}
	return write(cmd.OutOrStdout(), result)
}
