package operate

import (
	"net/netip"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/mitigation"
)

// Operations are what operators of a node can query and change; an [Operator] carries them out. Changes apply to the whole
// PoP, except for Reload. All methods must be safe for concurrent use.
type Operations interface {
	Status() Status
	Rules() Rules
	Files() *Files
	Mitigations(Query) (Mitigations, error)
	Mitigation(key string) (Mitigation, error)
	Add(Order) (Mitigation, error)
	Lift(LiftOne) (Lifted, error)
	LiftAll(Selection) (LiftedAll, error)
	Explain(values map[string]string) (Explanation, error)
	Near(n int) []async.Near
	Shards() Shards
	Drain(shard string, on bool) error
	Nodes() Nodes
	Decisions(DecisionQuery) (Decisions, error)
	Reload() (Reloaded, error)
	Changes() Changes

	// Note logs a change and remembers it. attrs describe what was changed, in pairs of a name and a value.
	Note(c Change, err error, attrs ...any)

	// Changed returns a number that changes whenever mitigations or rules do.
	Changed() uint64
}

// A Status describes the health of a node, and of its PoP as the node sees it.
type Status struct {
	Node    string `json:"node" doc:"name of the node"`
	Version string `json:"version"`

	Ready    bool     `json:"ready" doc:"whether the node should get connections"`
	Problems []string `json:"problems" doc:"what operators should know, as in /readyz"`

	Mitigations map[string]int `json:"mitigations" doc:"how many keys are refused, by rule; under an empty name if the rule is unknown, and under * if an operator refuses the client regardless of rules"`
	Logged      map[string]int `json:"logged" doc:"how many would be refused if the action of their rule were not log, by rule"`
	Ineffective int            `json:"ineffective" doc:"mitigations that the rules in force do not act on"`
	Lifted      int            `json:"lifted" doc:"lifts that are remembered"`

	Certificates []Certificate `json:"certificates,omitempty" doc:"those of tls_certs in use, first the one that expires first"`

	BacklogKeys int     `json:"backlog_keys" doc:"keys that wait to be counted at a shard"`
	Lag         float64 `json:"lag_s" doc:"age of the oldest request that waits to be counted, in seconds"`
}

// A Certificate is one that clients get over TLS.
type Certificate struct {
	Name      string    `json:"name" doc:"the first name that it is used for"`
	Serial    string    `json:"serial" doc:"in hexadecimal"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	File      string    `json:"file"`
}

// Rules are the rules in force.
type Rules struct {
	Rules []Rule `json:"rules"`
	Files *Files `json:"files,omitempty" doc:"what the rules files have now; left out without files"`
}

// Files describes what loading the rules files would change.
type Files struct {
	Changed bool   `json:"changed" doc:"whether they differ from the rules in force"`
	Frees   int    `json:"frees" doc:"how many clients that are refused would be free"`
	Error   string `json:"error,omitempty" doc:"why they cannot be loaded"`
}

// A Rule is a rule in force with its statistics on this node.
type Rule struct {
	Rule            string   `json:"rule" doc:"its ID"`
	Text            string   `json:"text" doc:"the rule in words"`
	Action          string   `json:"action" enum:"ACTIONS"`
	Characteristics []string `json:"characteristics" doc:"what it counts by"`
	Limits          []Limit  `json:"limits"`

	Mitigations int               `json:"mitigations" doc:"how many are acted on now, or, with action log, would be"`
	LastHour    uint64            `json:"refused_last_hour" doc:"requests that it refused on this node in the last hour, in steps of 5 minutes; 0 for rules after the first 1000"`
	Requests    map[string]uint64 `json:"requests" doc:"requests that the rule decided on this node since it started, by verdict; for rules after the first 1000, the sum over all of them"`
}

// A Limit is a threshold and its period.
type Limit struct {
	Threshold uint64  `json:"threshold" doc:"requests per period that are still allowed"`
	Period    float64 `json:"period_s" doc:"in seconds"`
}

// A Query selects a page of mitigations.
type Query struct {
	Rule   string       `query:"rule" doc:"ID of a rule; any: clients refused by hand, regardless of rules"`
	Client netip.Prefix `query:"client" doc:"address or network of the clients; needs nodes with log-clients"`
	Key    string       `query:"key" doc:"prefix of the key, in hexadecimal"`
	Node   string       `query:"node" doc:"name of the node that made it"`
	State  string       `query:"state" enum:"active,logged,ineffective,lifted,current" doc:"active: refused; logged: a dry run, action log; ineffective: not acted on under the current rules; lifted; current: all but lifted; all, if left out"`
	Sort   string       `query:"sort" enum:"end,start,key" doc:"end: latest end first, the default; start: newest first; key: by key"`
	Limit  int          `query:"limit" max:"1000" doc:"how many at most, 100 by default"`
	Cursor string       `query:"cursor" doc:"next of the previous page"`
}

// Mitigations is a page of mitigations.
type Mitigations struct {
	Mitigations []Mitigation `json:"mitigations"`
	Next        string       `json:"next,omitempty" doc:"cursor of the next page; left out if this is the last one"`
	Total       int          `json:"total" doc:"how many there are on all pages"`
}

// A Mitigation is one that is in force, or the lift of one.
type Mitigation struct {
	Key    string    `json:"key" doc:"hash of the rule and of the values of its characteristics, in hexadecimal"`
	State  string    `json:"state" enum:"active,logged,ineffective,lifted" doc:"active: refused; logged: a dry run, action log; ineffective: not acted on under the current rules; lifted"`
	About  string    `json:"about" doc:"what the rule counts under the key, as far as it is known: an address, a network, a label, a header and the key's fingerprint"`
	ID     string    `json:"id" doc:"ID that refusals have in the header Refusal-Id"`
	Start  time.Time `json:"start" doc:"by the clock of the node that made it"`
	Left   float64   `json:"left_s" doc:"time left, in seconds"`
	Lifted bool      `json:"lifted"`
	Why    string    `json:"why,omitempty" doc:"the estimate and its parts"`
	Period float64   `json:"period_s,omitempty" doc:"of the limit, in seconds"`

	ByHand bool   `json:"by_hand,omitempty" doc:"an operator started it"`
	Note   string `json:"note,omitempty" doc:"whom a mitigation by hand does not refuse; only in the response that starts it"`

	Ineffective bool `json:"ineffective,omitempty" doc:"the rules in force would not have started it, and do not act on it"`

	Node string `json:"node,omitempty" doc:"name of the node that made it, or its ID if the name is not known here"`

	// Rule and Action are empty if the rule was removed or if every node has restarted since, until
	// the client's next request.
	Rule   string `json:"rule,omitempty" doc:"ID of the rule in force; left out if it was removed or is not known here"`
	Action string `json:"action,omitempty" enum:"ACTIONS,deny" doc:"deny: an operator refuses the client, regardless of rules"`

	Client string `json:"client,omitempty" doc:"address of the request that crossed the threshold, if the nodes log clients"`
	Method string `json:"method,omitempty" doc:"of that request; known only to the node that made it, like host and path"`
	Host   string `json:"host,omitempty"`
	Path   string `json:"path,omitempty"`
}

// An Order starts a mitigation by hand.
type Order struct {
	Duration time.Duration     `query:"duration" required:"true" doc:"how long, such as 15m; at most 14d"`
	Reason   string            `query:"reason" required:"true" doc:"why, for the log"`
	Values   map[string]string `query:"*" doc:"an ip alone, to refuse the client regardless of rules; or a rule and the values of its characteristics, such as rule=login&ip=203.0.113.7; or a key or the id of a refusal, to prolong a mitigation. A rule refuses nobody if its action is log, and only clients beyond its threshold if it is shed"`
}

// A LiftOne ends the mitigations of a target.
type LiftOne struct {
	Reason string            `query:"reason" doc:"why, for the log"`
	Values map[string]string `query:"*" doc:"a key; the id of a refusal; an ip alone, for all that act on it; a network; or a rule and the values of its characteristics, such as rule=login&ip=203.0.113.7"`
}

// Lifted has the mitigations that ended.
type Lifted struct {
	Key         string       `json:"key" doc:"of the first of them"`
	Mitigations []Mitigation `json:"mitigations"`
}

// A Selection selects the mitigations of a rule, of clients in a network, of both, or all.
type Selection struct {
	Rule   string       `query:"rule" doc:"ID of a rule; any: clients refused by hand, regardless of rules; all, if left out"`
	Client netip.Prefix `query:"client" doc:"address or network of the clients; needs nodes with log-clients"`
	DryRun bool         `query:"dry_run" doc:"only count them"`
	Reason string       `query:"reason" doc:"why, for the log"`
}

// LiftedAll is the result of lifting a selection.
type LiftedAll struct {
	Mitigations int  `json:"mitigations" doc:"how many were lifted, or would be"`
	DryRun      bool `json:"dry_run"`
	Unknown     int  `json:"unknown" doc:"how many stay because this node does not know their rule or client"`
}

func (m Mitigation) audit() []any { return []any{"key", m.Key} }
func (l Lifted) audit() (attrs []any) {
	for _, m := range l.Mitigations {
		attrs = append(attrs, "key", m.Key)
	}
	return attrs
}
func (l LiftedAll) audit() []any { return []any{"mitigations", l.Mitigations} }

// A DecisionQuery selects recent lines of the decision log.
type DecisionQuery struct {
	Rule  string `query:"rule" doc:"ID of a rule"`
	Key   string `query:"key" doc:"prefix of the key, in hexadecimal, as in the log"`
	Limit int    `query:"limit" max:"1000" doc:"how many at most, 100 by default"`
}

// Decisions holds recent lines of the decision log, newest first.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
}

// A Decision is a decision about a key in the log's sample, or the count of a request by its answer.
type Decision struct {
	Event      string     `json:"event" enum:"decision,count"`
	Time       time.Time  `json:"time"`
	Rule       string     `json:"rule"`
	Key        string     `json:"key" doc:"a pseudonym, or, with log-clients, the key as in lists of mitigations"`
	Client     string     `json:"client,omitempty" doc:"address; only with log-clients"`
	Verdict    string     `json:"verdict,omitempty" doc:"on the request"`
	By         string     `json:"by,omitempty" doc:"rule that decided, if one did"`
	Mitigated  bool       `json:"mitigated" doc:"whether the key is mitigated"`
	ByHand     bool       `json:"by_hand" doc:"an operator started the mitigation"`
	Other      bool       `json:"other" doc:"the request was refused for another key"`
	Counted    bool       `json:"counted" doc:"it counted immediately"`
	Cost       uint64     `json:"cost" doc:"what the request counts if it passes; for event count, what it counted"`
	Generation int        `json:"generation" doc:"how often the key's mitigation was lifted before"`
	Decided    *time.Time `json:"decided,omitempty" doc:"when the request that has now counted was decided, if that is known"`
}

// MaxDuration is the maximum duration of a mitigation by hand.
const MaxDuration = mitigation.MaxLifetime

// Shards are the shards of a PoP.
type Shards struct {
	Shards []Shard `json:"shards"`
}

// A Shard is a counter shard as a node sees it.
type Shard struct {
	Addr    string  `json:"addr"`
	Down    bool    `json:"down" doc:"this node considers it down"`
	Answers bool    `json:"answers" doc:"it has answered this node's last request; false before the first one"`
	InRing  bool    `json:"in_ring" doc:"it owns keys"`
	Drained bool    `json:"drained" doc:"an operator took it out of the ring"`
	Breaker string  `json:"breaker" enum:"closed,open,half_open" doc:"closed: it is used; open: it is not; half_open: it is probed"`
	Waiting int     `json:"waiting_keys" doc:"keys that wait to be counted there"`
	Lag     float64 `json:"lag_s" doc:"age of the oldest request that waits to be counted there, in seconds"`
	Share   float64 `json:"share" doc:"part of the keys that it owns, from 0 to 1"`
}

// Nodes are the nodes of a PoP.
type Nodes struct {
	Nodes []Node `json:"nodes"`
}

// A Node is a node of the PoP, as known to the node that answers.
type Node struct {
	Name string `json:"name"`
	Self bool   `json:"self" doc:"it is the node that is asked"`

	State    string  `json:"state" enum:"ready,not_ready,stopping" doc:"stopping: it sends clients to other nodes and ends"`
	Requests float64 `json:"requests_per_s" doc:"in the last 5 seconds"`
	Refused  float64 `json:"refused_per_s" doc:"those of them that were refused"`

	Addr string `json:"addr,omitempty" doc:"its address for other nodes"`

	Version string  `json:"version" doc:"of the program; empty if the node does not report it"`
	Heard   float64 `json:"heard_s" doc:"time since its last status arrived, in seconds"`

	ClockAhead *float64 `json:"clock_ahead_s,omitempty" doc:"how far its clock is ahead of that of the node that is asked, in seconds; left out until it is known"`

	Fingerprints map[string]string `json:"fingerprints" doc:"hashes of what all nodes must have in common: secret, shards, rules, client_prefixes"`
	Differs      []string          `json:"differs" doc:"those of them that differ from the node that is asked"`
}

// Reloaded describes what was loaded.
type Reloaded struct {
	Rules int `json:"rules" doc:"how many rules are in force"`
	Frees int `json:"frees" doc:"how many clients were refused before, and are not any more"`
}

// An Unknown error reports that a named object does not exist.
type Unknown string

func (u Unknown) Error() string { return string(u) }
