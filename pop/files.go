package pop

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/rule"
)

// files are the rules, the certificate, the keys and the tokens of a node, which may change while it
// runs.
type files struct {
	o           Options
	metrics     *metrics
	logger      *slog.Logger
	rules       *rule.Set // the first
	certificate atomic.Pointer[tls.Certificate]
	keys        [][]byte // of the gossip, the first
	setKeys     func([][]byte) error
	tokens      *admin.Tokens
	nodes       func() int // how many the PoP has

	mu    sync.Mutex // held while loading
	stamp string     // of what was loaded last, in force or not
	named []string   // files that the rules files name
}

// newFiles loads the files.
func newFiles(o Options, m *metrics, tokens *admin.Tokens) (*files, error) {
	f := &files{o: o, metrics: m, logger: o.Logger, rules: o.Rules, tokens: tokens}
	rules, rulesErr := f.loadRules()
	if err := f.loadCertificate(); err != nil {
		return nil, err
	}
	var err error
	if f.keys, err = f.loadKeys(); err != nil {
		return nil, err
	}
	if err := f.loadTokens(); err != nil {
		return nil, err
	}
	if len(o.RuleFiles) > 0 {
		if f.rules, err = rules, rulesErr; err != nil {
			if _, inFile := err.(rule.Errors); !inFile {
				return nil, &SettingError{Setting: "rules", Problem: strings.TrimPrefix(err.Error(), "rule: ")}
			}
			return nil, err
		}
		f.noteHyphens(f.rules)
	}
	if err := o.checkRules(f.rules, o.MaxNodes); err != nil {
		return nil, err
	}
	m.reloaded(nil)
	return f, nil
}

func (f *files) loadCertificate() error {
	if f.o.TLSCert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(f.o.TLSCert, f.o.TLSKey)
	if err != nil {
		return fmt.Errorf("pop: loading the certificate: %w", err)
	}
	f.certificate.Store(&pair)
	return nil
}

// keyFile returns the name of the file with the keys of the gossip, if there is one.
func (f *files) keyFile() string {
	if f.o.Gossip == nil {
		return ""
	}
	return f.o.Gossip.KeyFile
}

// loadKeys reads the keys of the gossip.
func (f *files) loadKeys() (keys [][]byte, err error) {
	file := f.keyFile()
	switch {
	case f.o.Gossip == nil:
		return nil, nil
	case file == "":
		return f.o.Gossip.Keys, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("pop: reading the keys of the gossip: %w", err)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			return nil, fmt.Errorf("pop: %s:%d: a key is not base64; head -c 32 /dev/urandom | base64 makes one", file, number)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("pop: %s has no key; head -c 32 /dev/urandom | base64 makes one", file)
	}
	return keys, nil
}

// reloadKeys reads the keys again.
func (f *files) reloadKeys() error {
	if f.keyFile() == "" {
		return nil
	}
	keys, err := f.loadKeys()
	if err != nil {
		return err
	}
	return f.setKeys(keys)
}

// loadTokens reads the tokens of operators.
func (f *files) loadTokens() error {
	if f.o.AdminTokens == "" {
		return nil
	}
	if err := f.tokens.Read(f.o.AdminTokens); err != nil {
		return &SettingError{Setting: "admin-tokens", Problem: err.Error()}
	}
	return nil
}

// tls returns the configuration of the TLS listener.
func (f *files) tls() *tls.Config {
	return &tls.Config{
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return f.certificate.Load(), nil
		},
	}
}

// loadRules loads the rules, if they are in files, and stamps what is loaded now.
func (f *files) loadRules() (*rule.Set, error) {
	for {
		f.stamp = f.now()
		if len(f.o.RuleFiles) == 0 {
			return nil, nil
		}
		set, named, err := rule.Read(f.o.RuleFiles...)
		if slices.Equal(named, f.named) {
			return set, err
		}
		f.named = named // load them again, stamped before they are read
	}
}

// reload loads the files again and passes the rules to set. What has an error leaves the
// old as it is.
func (f *files) reload(set func(*rule.Set)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	rules, err := f.loadRules()
	otherErr := errors.Join(f.loadCertificate(), f.reloadKeys(), f.loadTokens())
	if len(f.o.RuleFiles) == 0 {
		return otherErr
	}
	if err == nil {
		err = f.o.checkRules(rules, f.nodes())
	}
	if f.metrics.reloaded(err); err == nil {
		set(rules)
		f.logger.Info("rules loaded", "rules", len(rules.Rules()))
		f.noteHyphens(rules)
	}
	return errors.Join(err, otherErr)
}

// noteHyphens logs that keys of rules files are spelled with hyphens.
func (f *files) noteHyphens(rules *rule.Set) {
	if note := rules.Hyphens().Note(); note != nil {
		f.logger.Warn("keys of rules files have hyphens; underscores are the spelling", "note", note)
	}
}

// watch reloads the files when they change, until ctx is done. It looks once a second,
// and loads what has stayed the same for one: by then it is written whole.
func (f *files) watch(ctx context.Context, set func(*rule.Set)) {
	if len(f.o.RuleFiles) == 0 && f.o.TLSCert == "" && f.keyFile() == "" && f.o.AdminTokens == "" {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.mu.Lock()
		now := f.now()
		loaded := f.stamp == now
		f.mu.Unlock()
		if !loaded && now == last {
			if err := f.reload(set); err != nil {
				LogReloadError(f.logger, err)
			}
		}
		last = now
	}
}

// LogReloadError says why files were not reloaded, a line for each error in them.
func LogReloadError(logger *slog.Logger, err error) {
	said := map[string]bool{} // the nodes of a Local all say the same
	for _, e := range singleErrors(err) {
		if said[e.Error()] {
			continue
		}
		said[e.Error()] = true
		message := "not reloaded, what was loaded before stays"
		if _, ok := e.(*rule.Error); ok {
			message = "rules not reloaded, the old ones stay"
		}
		logger.Error(message, "err", e)
	}
}

// singleErrors returns the errors that err consists of.
func singleErrors(err error) (all []error) {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range many.Unwrap() {
		all = append(all, singleErrors(e)...)
	}
	return all
}

// now returns what changes when a file does: names, sizes, times. Links are followed, so
// that a directory which is replaced by switching a link is noticed.
func (f *files) now() string {
	names, _ := rule.Files(f.o.RuleFiles...) // an error shows as a change
	var b strings.Builder
	for _, name := range slices.Concat(names, f.named, []string{f.o.TLSCert, f.o.TLSKey, f.keyFile(), f.o.AdminTokens}) {
		if info, err := os.Stat(name); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}
