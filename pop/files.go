package pop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/tick"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// files are the rules, the certificates, the keys and the tokens of a node, which may change while it runs.
type files struct {
	o      *Options
	nodes  func() int // returns the number of nodes of the PoP
	tokens operate.Tokens

	successful, succeeded prometheus.Gauge

	certificates atomic.Pointer[certificates]
	problem      atomic.Value // string: why the last reload failed; empty if it succeeded

	mu     sync.Mutex       // held while loading
	loaded map[string]stamp // of the files loaded last, whether in force or not
	named  []string         // files that the rules files name
}

// A stamp changes when its file does. It is zero if the file cannot be found.
type stamp struct {
	inode          uint64
	size, modified int64 // in bytes, and in nanoseconds
	mode           os.FileMode
}

func newFiles(o *Options, nodes func() int, reg prometheus.Registerer) *files {
	f := &files{
		o: o, nodes: nodes,
		successful: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "edge_rules_last_reload_successful",
			Help: "1 if the current rules files are in force, 0 if they have an error and older rules stay in force.",
		}),
		succeeded: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "edge_rules_last_reload_success_timestamp_seconds",
			Help: "Unix time at which the current rules were loaded.",
		}),
	}
	f.record(nil)
	f.problem.Store("")
	f.certificates.Store(&certificates{first: new(certificate)})
	reg.MustRegister(prometheus.CollectorFunc(f.collect))
	return f
}

// record records the result of loading rules.
func (f *files) record(err error) {
	f.successful.Set(0)
	if err == nil {
		f.successful.Set(1)
		f.succeeded.Set(float64(time.Now().Unix()))
	}
}

// load loads the files, and returns all errors, joined. The rules and the keys of the gossip are nil if they have an error,
// or if no files contain them. mu is held, unless the node is being made.
func (f *files) load() (rules *rule.Set, keys [][]byte, err error) {
	rules, err = f.loadRules()
	if rules != nil || err != nil {
		f.record(err)
	}
	keys, keysErr := f.loadKeys()
	err = errors.Join(err, f.loadCertificates(), keysErr)
	if f.o.AdminTokens != "" {
		if tokensErr := f.tokens.Read(f.o.AdminTokens); tokensErr != nil {
			err = errors.Join(err, setting.FileError("admin-tokens", tokensErr))
		}
	}
	return rules, keys, err
}

// loadKeys reads the keys of the gossip.
func (f *files) loadKeys() (keys [][]byte, err error) {
	file := f.o.Gossip.KeyFile
	if file == "" {
		return nil, nil
	}
	text, err := setting.ReadSecret(file)
	if err == nil {
		keys, err = parseKeys(file, text)
	}
	if err != nil {
		return nil, secretFileError("gossip-key-file", 32, err)
	}
	return keys, nil
}

// parseKeys parses the keys of the gossip, one on each line of a file.
func parseKeys(file, text string) (keys [][]byte, err error) {
	const toMake = "make one with: head -c 32 /dev/urandom | base64"
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, err := parseGossipKey(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: a key is not base64 of 16, 24 or 32 bytes; %s", file, i+1, toMake)
		}
		keys = append(keys, key)
	}
	if keys == nil {
		return nil, fmt.Errorf("%s has no key; %s", file, toMake)
	}
	return keys, nil
}

// loadRules loads the rules, and records the stamps of the loaded files.
func (f *files) loadRules() (*rule.Set, error) {
	for {
		f.loaded = f.stamps()
		if len(f.o.RuleFiles) == 0 {
			return nil, nil
		}
		rules, named, err := f.read()
		if slices.Equal(named, f.named) {
			return rules, err
		}
		f.named = named // load again, now that the stamps cover these files
	}
}

// read reads and checks the rules files, and returns which files they name, even after an error.
func (f *files) read() (rules *rule.Set, named []string, err error) {
	all, err := rulefile.Read(f.o.RuleFiles...)
	if err == nil {
		err = f.o.checkRules(all.Set, f.nodes())
	} else if _, inFile := err.(rulefile.Errors); !inFile {
		err = setting.FileError("rules", err)
	}
	if err != nil {
		return nil, all.Named, err
	}
	return all.Set, all.Named, nil
}

// reload loads the files again, and calls use with the results of load. It returns all errors, joined.
func (f *files) reload(use func(rules *rule.Set, keys [][]byte) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	rules, keys, err := f.load()
	err, problem := errors.Join(err, use(rules, keys)), ""
	if err != nil {
		problem = fmt.Sprintf("cannot reload files, so their previous versions stay in force: %s", prose.Summary(err))
	}
	f.problem.Store(problem)
	return err
}

// watch calls reload when the files change, until ctx is done. It looks once a second, and waits until the changed
// files are complete: a file is complete if it has replaced another one, as a rename does, or has not changed since the
// last look. A program that keeps writing to one file must not hold up the others, so the third look reloads in any
// case.
func (f *files) watch(ctx context.Context, reload func() error) {
	var last map[string]stamp
	var warned []string // files that the last warning named
	looks := 0          // consecutive ones that found changes to load
	tick.Every(ctx, time.Second, func() {
		f.mu.Lock()
		now, loaded := f.stamps(), f.loaded
		f.mu.Unlock()
		var incomplete []string
		for name, s := range now {
			was := loaded[name]
			replaced := s.inode != 0 && was.inode != 0 && s.inode != was.inode
			if s != was && s != last[name] && !replaced {
				incomplete = append(incomplete, name)
			}
		}
		last = now
		looks++
		switch {
		case maps.Equal(now, loaded):
			looks = 0
			return
		case len(incomplete) > 0 && looks < 3:
			return
		case len(incomplete) > 0:
			slices.Sort(incomplete)
			if slices.Equal(incomplete, warned) {
				break
			}
			warned = incomplete
			f.o.Logger.Warn("files keep changing and may be loaded half written; replace them with renamed ones instead", "files", incomplete)
		}
		looks = 0
		if err := reload(); err != nil {
			LogReloadError(f.o.Logger, err)
		}
	})
}

// LogReloadError logs why files were not reloaded, with a line for each error.
func LogReloadError(logger *slog.Logger, err error) {
	for _, e := range prose.SingleErrors(err) {
		message := "cannot reload a file; the previous version stays in force"
		if _, ok := e.(*rulefile.Error); ok {
			message = "cannot reload the rules; the previous ones stay in force"
		}
		logger.Error(message, "err", e)
	}
}

// stamps returns the current stamps of all files, by name. It follows symlinks, so it notices when a directory is
// replaced by changing a symlink, even if all files have the same time.
func (f *files) stamps() map[string]stamp {
	all := map[string]stamp{}
	names, _ := rulefile.Files(f.o.RuleFiles...) // an error looks like a change
	pairs, _ := f.o.pairs()
	for _, p := range pairs {
		names = append(names, p.cert, p.key)
	}
	for _, name := range slices.Concat(names, f.named, []string{f.o.Gossip.KeyFile, f.o.AdminTokens}) {
		all[name] = stamp{}
		if info, err := os.Stat(name); err == nil {
			all[name] = stamp{info.Sys().(*syscall.Stat_t).Ino, info.Size(), info.ModTime().UnixNano(), info.Mode()}
		}
	}
	return all
}
