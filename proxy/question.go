package proxy

import (
	"log/slog"
	"strings"
	"time"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A question is a query of another proxy about a request, or its report about the answer to one. It is valid as long as
// the message that it was read from.
type question struct {
	arrival
	req             rule.Request
	chain           []string // X-Forwarded-For
	header          []byte   // all fields, in the encoding of SPOP
	target          string   // path and query, possibly in absolute form
	report          bool
	status          int          // of the reported answer; 0 if it is missing or invalid
	cost            reportedCost // of the reported answer
	reportedVerdict string       // the verdict of the reported request, if the proxy sends it

	// Of a question in an HTTP request:
	in    description
	twice string // the name of a field that was repeated
}

// remembered is how long another proxy may refuse all requests of a client without asking, if the refusal permits it.
const remembered = 2 * time.Second

// settle makes the decision for q, calls answer, and logs the request. If q is a report, settle counts the reported
// answer instead of deciding.
func (p *Proxy) settle(q *question, proto string, now time.Time, answer func() (status int, bytes int64)) {
	req := &q.req
	req.Borrowed = true
	req.Admit(req.Method, req.Host, q.target)
	if q.report {
		p.environment.report()
		if !limit.Refused(q.reportedVerdict) && q.reportedVerdict != limit.Own.String() {
			p.o.Limiter.Report(req, q.status, q.cost, now)
		}
		if p.o.AccessLog != nil {
			p.o.AccessLog.Info("response reported", "client", q.client, "method", req.Method, "host", req.Host,
				"uri", originForm(req), "status", q.status)
		}
		answer()
		return
	}
	var line requestLine
	if p.o.AccessLog != nil {
		// q is not valid after the answer
		line = requestLine{strings.Clone(req.Method), strings.Clone(req.Host), originForm(req), proto}
	}
	p.decide(&q.arrival, req, now)
	if q.decision.CountsAnswer() && p.environment.due(now) {
		p.environment.ask(now)
	}
	status, bytes := answer()
	if p.o.AccessLog != nil {
		if !q.decision.Verdict.Refused() {
			status = 0 // the origin's status is not known before a report
		}
		p.logRequest(&q.arrival, now, line, status, bytes)
	}
}

// originForm returns the target of a request without its scheme and host.
func originForm(req *rule.Request) string { return strings.TrimSuffix(req.Path+"?"+req.Query, "?") }

// A reportedCost has the values of an answer's cost header, whatever its name, as another proxy reports them.
type reportedCost []string

// Values returns r.
func (r reportedCost) Values(string) []string { return r }

// notTrusted is the answer to a question from an address that is not trusted.
const notTrusted = "this address is not a trusted proxy: add it to the node's trusted_proxy"

// undecided counts and logs a question from another proxy that gets no decision.
func (p *Proxy) undecided(reason string, now time.Time, text string, args ...any) {
	p.metrics.undecided[reason].Inc()
	p.warnings.Log(p.o.Logger, slog.LevelWarn, now, text, args...)
}
