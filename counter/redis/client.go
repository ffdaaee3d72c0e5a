package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/wire"
)

// maxStored is the maximum size of the values that a batch reads, in bytes; see also wire.Longest.
const maxStored = 1 << 17

// A Client talks to one shard, a Redis or Valkey that owns part of a PoP's counters. It is safe for concurrent use. Its
// methods block for a round trip, so the request path must not call them.
type Client struct{ *wire.Client }

// An Address is the address of a shard, with everything that a connection needs.
type Address struct {
	Name string // redis://HOST:PORT/DB, without secrets: the same on every node

	host     string // HOST:PORT
	db       string
	user     string
	password string
	tls      *tls.Config // nil without TLS
}

// Schemes are the schemes of URLs that ParseAddress reads.
var Schemes = []string{"redis", "rediss"}

// ParseAddress parses redis://USER:PASSWORD@HOST:PORT/DB, or rediss:// for TLS. The parameters password_file, ca, cert
// and key name files. readSecret reads password_file and key.
func ParseAddress(text string, readSecret func(file string) (string, error)) (a Address, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return a, errors.New("must be redis://USER:PASSWORD@HOST:PORT/DB") // the error of url would show the password
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return a, errors.New("has an invalid query after the question mark")
	}
	for name := range query {
		switch name {
		case "password_file":
		case "ca", "cert", "key":
			if u.Scheme != "rediss" {
				return a, fmt.Errorf("has the parameter %s, which needs rediss://", name)
			}
		default:
			return a, fmt.Errorf("has the unknown parameter %q; known are password_file, ca, cert and key", name)
		}
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	a.db = strings.TrimPrefix(u.Path, "/")
	isNumber := func(text string) bool {
		_, err := strconv.ParseUint(text, 10, 16)
		return err == nil
	}
	if a.db != "" && !isNumber(a.db) || !isNumber(port) || u.Hostname() == "" || u.Fragment != "" {
		return a, errors.New("must be redis://USER:PASSWORD@HOST:PORT/DB, where DB is a number")
	}
	a.host = net.JoinHostPort(u.Hostname(), port)
	a.Name = u.Scheme + "://" + a.host
	if a.db != "" {
		a.Name += "/" + a.db
	}
	a.user = u.User.Username()
	a.password, _ = u.User.Password()
	if file := query.Get("password_file"); file != "" {
		if a.password != "" {
			return a, errors.New("has a password and a password_file: give one of them")
		}
		text, err := readSecret(file)
		if err != nil {
			return a, err
		}
		a.password = strings.TrimRight(text, "\r\n")
	}
	if a.user != "" && a.password == "" {
		return a, errors.New("has a user without a password")
	}
	if u.Scheme == "rediss" {
		a.tls, err = tlsOf(u.Hostname(), query, readSecret)
	}
	return a, err
}

// tlsOf returns the configuration of TLS for host.
func tlsOf(host string, query url.Values, readSecret func(file string) (string, error)) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if file := query.Get("ca"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("names %s, which has no certificate in PEM format", file)
		}
	}
	certFile, keyFile := query.Get("cert"), query.Get("key")
	if (certFile == "") != (keyFile == "") {
		return nil, errors.New("has only one of the parameters cert and key: give both")
	}
	if certFile == "" {
		return c, nil
	}
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := readSecret(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, []byte(key))
	if err != nil {
		return nil, fmt.Errorf("names %s and %s, which are not a certificate and its key: %w", certFile, keyFile, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// New returns a client for the shard at an address. It connects on first use.
func New(a Address, o wire.Options) *Client {
	greeting, replies := []byte(nil), 1
	switch {
	case a.user != "":
		greeting, replies = word(word(command(greeting, 3, "AUTH"), a.user), a.password), replies+1
	case a.password != "":
		greeting, replies = word(command(greeting, 2, "AUTH"), a.password), replies+1
	}
	if a.db != "" {
		greeting, replies = word(command(greeting, 2, "SELECT"), a.db), replies+1
	}
	greeting = word(word(command(greeting, 3, "SCRIPT"), "LOAD"), replace)
	s := &Client{wire.New(a.Name, o, func() wire.Protocol {
		return &protocol{greeting: greeting, replies: replies}
	})}
	connect := s.Dial
	s.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := connect(ctx, network, a.host)
		if err != nil || a.tls == nil {
			return conn, err
		}
		secure := tls.Client(conn, a.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secure, nil
	}
	return s
}

// Update replaces the value under item with the result of change, in at most three tries if others write it at the same
// time. old is nil if there is no value. change returns the new value and its time to live in seconds, or nil to keep
// the old one.
func (s *Client) Update(item counter.Item, change func(old []byte) (value []byte, ttl int32)) error {
	for range 3 {
		read := counter.Batch{Reads: []counter.Read{{Item: item}}}
		if err := s.Exchange(&read); err != nil {
			return err
		}
		value, ttl := change(read.Reads[0].Value)
		if value == nil {
			return nil
		}
		write := counter.Batch{Stores: []counter.Store{{Item: item, Value: value, TTL: ttl, CAS: read.Reads[0].CAS}}}
		if err := s.Exchange(&write); err != nil {
			return err
		}
		switch write.Stores[0].Outcome {
		case counter.Done:
			return nil
		case counter.Refused:
			return fmt.Errorf("%w: %s refuses the record", counter.ErrNotSent, s.Addr())
		}
	}
	return fmt.Errorf("%w: other nodes keep writing the record on %s", counter.ErrUnknown, s.Addr())
}
