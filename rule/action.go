package rule

import (
	"strings"

	"github.com/edgelimit/edge/internal/prose"
)

// An Action is what happens to the requests of a mitigated key. Greater actions are more severe. If
// several rules mitigate a request, the most severe action is taken.
//
// To add an action, add a constant and a row to actions, and a row to those of load/judge/answer.go. If it lets
// requests pass, add its verdict to the others that do in deploy/monitoring.yaml.
type Action uint8

const (
	Log       Action = iota // count and record, never act
	Shed                    // refuse the share of the key's clients that exceeds the threshold
	ShadowBan               // answer with a prepared response, without asking the origin
	Block                   // refuse with a response that says why
	Close                   // close the connection, or reset the stream

	Actions      = iota // how many there are
	leastRefusal = Shed // less severe actions let requests pass
)

// An actionRow says what distinguishes an action from others.
type actionRow struct {
	name, verdict string // in rules files, and in metrics and logs
	does          string // what happens to requests, in English; % is the status of the response
	hides         bool   // clients must not notice: by default, they get an empty 200
	tellsQuota    bool   // clients learn what is left of limits
	closes        bool   // clients get a response only from other proxies
}

var actions = [Actions]actionRow{
	Log: {name: "log", verdict: "logged", does: "still pass, but are logged,"},
	Shed: {name: "shed", verdict: "shed",
		does: "are refused with % for the share of its clients that exceeds the threshold,"},
	ShadowBan: {name: "shadow_ban", verdict: "shadow_banned", hides: true,
		does: "get a prepared % and never reach the origin"},
	Block: {name: "block", verdict: "blocked", does: "are refused with %", tellsQuota: true},
	Close: {name: "close", verdict: "closed", tellsQuota: true, closes: true,
		does: "have their connection closed (or, behind a trusted proxy, get %)"},
}

// ActionNames returns the names of all actions, in their order.
func ActionNames() []string {
	return prose.Texts(actions[:], func(a actionRow) string { return a.name })
}

// Verdicts returns the verdicts on requests, as metrics and logs write them, by action.
func Verdicts() []string {
	return prose.Texts(actions[:], func(a actionRow) string { return a.verdict })
}

// String returns the action as spelled in rules files.
func (a Action) String() string { return actions[a].name }

// Does says what happens to requests, given the status of the response.
func (a Action) Does(status string) string { return strings.Replace(actions[a].does, "%", status, 1) }

// Refuses reports whether requests are kept from the origin.
func (a Action) Refuses() bool { return a >= leastRefusal }

// Hides reports whether clients must not notice that they are refused.
func (a Action) Hides() bool { return actions[a].hides }

// Closes reports whether clients of a node get no response.
func (a Action) Closes() bool { return actions[a].closes }

// TellsQuota reports whether clients learn what is left of r's limits.
func (r *Rule) TellsQuota() bool { return actions[r.Action].tellsQuota && !r.HidesQuota }
