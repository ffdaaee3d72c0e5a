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

	"github.com/edgelimit/edge/pop/rule"
)

// files are the rules, the certificate and the keys of a node, which may change while it
// runs.
type files struct {
	o           Options
	metrics     *metrics
	logger      *slog.Logger
	rules       *rule.Set // the first
	certificate atomic.Pointer[tls.Certificate]
	keys        [][]byte // of the gossip, the first
	setKeys     func([][]byte) error
	nodes       func() int // how many the PoP has

	mu    sync.Mutex // held while loading
	stamp string     // of what was loaded last, in force or not
}

// newFiles loads the files.
func newFiles(o Options, m *metrics) (*files, error) {
	f := &files{o: o, metrics: m, logger: o.Logger, rules: o.Rules}
	f.stamp = f.now()
	if err := f.loadCertificate(); err != nil {
		return nil, err
	}
	var err error
	if f.keys, err = f.loadKeys(); err != nil {
		return nil, err
	}
	if len(o.RuleFiles) > 0 {
		if f.rules, err = rule.Load(o.RuleFiles...); err != nil {
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

// tls returns the configuration of the TLS listener.
func (f *files) tls() *tls.Config {
	return &tls.Config{
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return f.certificate.Load(), nil
		},
	}
}

// reload loads the files again and passes the rules to set. What has an error leaves the
// old as it is.
func (f *files) reload(set func(*rule.Set)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stamp = f.now()
	otherErr := errors.Join(f.loadCertificate(), f.reloadKeys())
	if len(f.o.RuleFiles) == 0 {
		return otherErr
	}
	rules, err := rule.Load(f.o.RuleFiles...)
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
	if len(f.o.RuleFiles) == 0 && f.o.TLSCert == "" && f.keyFile() == "" {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last := f.now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := f.now()
		f.mu.Lock()
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
	for _, name := range slices.Concat(names, []string{f.o.TLSCert, f.o.TLSKey, f.keyFile()}) {
		if info, err := os.Stat(name); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}
