package operate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
)

// maxChanges is the maximum number of changes that a node remembers.
const maxChanges = 500

// Changes are the last changes made through a node, the newest first.
type Changes struct {
	Changes []Change `json:"changes"`
}

// A Change is a change that an operator has made or tried to make.
type Change struct {
	Time   time.Time `json:"time"`
	By     string    `json:"by" doc:"name of the token, SIGHUP for a reload by that signal, or file for a reload after a file has changed"`
	From   string    `json:"from,omitempty" doc:"address that sent the request"`
	Do     string    `json:"do" doc:"the operation, such as mitigations-lift"`
	What   string    `json:"what,omitempty" doc:"what was changed: rule, key, network, shard, duration"`
	Reason string    `json:"reason,omitempty"`
	Error  string    `json:"error,omitempty" doc:"why nothing has changed: the first error; the log has all"`
}

// Note logs a change and remembers it. attrs describe what was changed, in pairs of a name and a value.
func (o *Operator) Note(c Change, err error, attrs ...any) {
	line := append([]any{"by", c.By, "from", c.From, "do", c.Do, "reason", c.Reason}, attrs...)
	if err != nil {
		line = append(line, "err", err)
	}
	o.Logger.Info("admin change", line...)
	o.Remember(c, err, attrs...)
}

// Remember is Note for a change that the caller logs.
func (o *Operator) Remember(c Change, err error, attrs ...any) {
	var pairs []string
	for pair := range slices.Chunk(attrs, 2) {
		pairs = append(pairs, fmt.Sprintf("%v=%v", pair[0], pair[1]))
	}
	if err != nil {
		c.Error = prose.Summary(err)
	}
	c.Time, c.What = o.Now().UTC(), strings.Join(pairs, " ")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes = append(o.changes, c)
	o.changes = o.changes[max(0, len(o.changes)-maxChanges):]
}

// Changes returns the last changes.
func (o *Operator) Changes() Changes {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := append([]Change{}, o.changes...) // not nil, which would be null in JSON
	slices.Reverse(all)
	return Changes{all}
}
