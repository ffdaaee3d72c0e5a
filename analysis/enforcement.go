package analysis

import (
	"fmt"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
)

// An Enforcement describes what rules would have done to the requests of a log. A request counts
// as refused by the rule that made the decision, even if that rule only logged it because its
// action is log: see Action.
type Enforcement struct {
	Requests uint64    `json:"requests"`
	Clients  int       `json:"clients"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	PoP      PoPReport `json:"pop"`

	Allowed uint64 `json:"allowed"` // by the allow list
	Denied  uint64 `json:"denied"`  // by the deny list
	Refused uint64 `json:"refused"` // by rules whose action is not log
	Logged  uint64 `json:"logged"`  // by rules whose action is log

	WronglyRefused Disagreement `json:"wrongly_refused"` // by all rules together
	WronglyAllowed Disagreement `json:"wrongly_allowed"`

	// Truth is nil if the log marks no request as an attack.
	Truth *Truth `json:"truth,omitempty"`

	Rules    []RuleEnforcement `json:"rules"` // in the order of the files
	Timeline figure.Timeline   `json:"timeline"`

	// ClientTimelines is nil without EnforcementOptions.Detail.
	ClientTimelines *Clients `json:"client_timelines,omitempty"`
}

// A PoPReport describes a PoP. Times are in seconds.
type PoPReport struct {
	Nodes  int      `json:"nodes"`
	Shards int      `json:"shards"`
	Spread string   `json:"spread"`
	LagS   float64  `json:"lag_s"`
	SkewS  float64  `json:"skew_s"`
	Losses []string `json:"losses,omitempty"` // in the format of ParseLoss
}

// simplest reports whether an instantPoP suffices: one node that knows everything immediately and loses nothing.
func (p PoPReport) simplest() bool { return p.Nodes == 1 && p.LagS == 0 && len(p.Losses) == 0 }

// String returns a description of the PoP.
func (p PoPReport) String() string {
	if p.simplest() {
		return "One node decides and knows every count immediately."
	}
	s := fmt.Sprintf("PoP: %s, %s, spread by %s, lag %v, clocks %v apart", chart.Count(p.Nodes, "node"),
		chart.Count(p.Shards, "shard"), p.Spread, figure.Lasting(p.LagS), figure.Lasting(p.SkewS))
	if len(p.Losses) > 0 {
		s += ", lost: shard " + strings.Join(p.Losses, ", shard ")
	}
	return s + "."
}

// A RuleEnforcement describes what one rule would have done. If several rules apply to a refused request, the
// one with the most severe action decides, and among equals the one whose mitigation lasts longest. None of them
// counts the request.
type RuleEnforcement struct {
	Rule   string `json:"rule"`
	Action string `json:"action"`
	Means  string `json:"means"` // description in a sentence

	Matched    uint64  `json:"matched"`     // requests that the rule applies to
	Counted    uint64  `json:"counted"`     // requests that it counted
	Refused    uint64  `json:"refused"`     // requests that it refused, or would have refused
	RefusedPct float64 `json:"refused_pct"` // share of the matched requests

	Truth *Truth `json:"truth,omitempty"` // the requests that it refused, out of all in the log

	Clients      int         `json:"clients"` // clients with refused requests
	FirstRefusal *time.Time  `json:"first_refusal,omitempty"`
	TopClients   []TopClient `json:"top_clients,omitempty"`
	TopPaths     []TopPath   `json:"top_paths,omitempty"`

	// Shares has the number of refused requests of the 1, 2, 5, 10 … clients with the most of them. Peaks has
	// the distribution of the peaks of keys for each limit, or is nil without EnforcementOptions.Detail.
	Shares []Share      `json:"shares,omitempty"`
	Peaks  []LimitPeaks `json:"peaks,omitempty"`

	// Mitigations are counted per key: mitigations that several nodes start at the same time count as one.
	Mitigations int                `json:"mitigations"`
	Mitigated   MitigationDuration `json:"mitigated"`

	// Bystanders is nil if every key belongs to a single client, or the rule only logs.
	Bystanders *Bystanders `json:"bystanders,omitempty"`

	// ExactRefused is the number of requests that the rule would have refused by exact counts.
	ExactRefused   uint64       `json:"exact_refused"`
	WronglyRefused Disagreement `json:"wrongly_refused"` // refused by this rule, and not by exact counts
	WronglyAllowed Disagreement `json:"wrongly_allowed"` // refused by this rule by exact counts, but not here
}

// Bystanders are clients that a rule refused because of a shared key. In the whole log, the estimate over all requests
// of such a client never exceeded a limit of a rule whose keys belong to individual clients.
type Bystanders struct {
	Requests uint64 `json:"requests"` // refused requests
	Clients  int    `json:"clients"`
}

// A TopClient is a client with the number of requests in question.
type TopClient struct {
	Client   string    `json:"client"`
	Requests uint64    `json:"requests"`
	First    time.Time `json:"first"`
}

// A Share is the number of refused requests that some clients sent.
type Share struct {
	Clients int    `json:"clients"`
	Refused uint64 `json:"refused"`
}

// A TopPath is a path without its query, with the number of requests in question.
type TopPath struct {
	Path     string `json:"path"`
	Requests uint64 `json:"requests"`
}

// A MitigationDuration describes the duration of mitigations from start to end, even if they end after the
// log does. Times are in seconds.
type MitigationDuration struct {
	TotalS  float64 `json:"total_s"`
	MedianS float64 `json:"median_s"`
	MaxS    float64 `json:"max_s"`
}

// A Disagreement counts decisions that differ from those by exact counts.
type Disagreement struct {
	Requests uint64  `json:"requests"`
	Clients  int     `json:"clients"`
	ByCause  ByCause `json:"by_cause"`
}

// A ByCause is the number of requests that each cause explains.
type ByCause struct {
	Estimate uint64 `json:"estimate"`
	Lag      uint64 `json:"lag"`
	Failure  uint64 `json:"failure"`
}

// A cause is the reason why a decision differs from the exact one.
type cause uint8

const (
	byEstimate cause = iota // the estimate assumes that the previous window was evenly filled
	byLag                   // nodes learn of counts and records later, and their clocks differ
	byFailure               // a shard and its counts are lost
	causesOfError
)
