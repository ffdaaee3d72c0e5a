package admin

import "time"

// A DecisionQuery selects recent lines of the decision log.
type DecisionQuery struct {
	Rule  string `query:"rule" doc:"ID of a rule"`
	Key   string `query:"key" doc:"how the key begins, in hexadecimal, as the log has it"`
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
	Key        string     `json:"key" doc:"a pseudonym, or, with log-clients, the key as lists of mitigations have it"`
	Client     string     `json:"client,omitempty" doc:"address; only with log-clients"`
	Verdict    string     `json:"verdict,omitempty" doc:"on the request"`
	By         string     `json:"by,omitempty" doc:"rule that decided, if one did"`
	Mitigated  bool       `json:"mitigated" doc:"the key is"`
	ByHand     bool       `json:"by_hand" doc:"an operator started the mitigation"`
	Other      bool       `json:"other" doc:"the request was refused for another key"`
	Counted    bool       `json:"counted" doc:"it counted immediately"`
	Cost       uint64     `json:"cost" doc:"what the request counts if it passes; what it counted, by its response"`
	Generation int        `json:"generation" doc:"how often the key's mitigation was lifted before"`
	Decided    *time.Time `json:"decided,omitempty" doc:"when the request was decided that now counted, if that is known"`
}
