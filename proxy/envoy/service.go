// Package envoy implements Envoy's rate limit service (RLS), version 3, with the rules of a node.
//
// It is a module of its own, so that programs that do not speak gRPC need not download it.
package envoy

import (
	"context"
	"log/slog"
	"slices"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/rule"
)

// A Service implements Envoy's rate limit service. It answers from memory and never waits.
type Service struct {
	rls.UnimplementedRateLimitServiceServer
	node    *pop.Node
	logger  *slog.Logger
	metrics *metrics
	logs    map[string]*lograte.Limiter // for undecided descriptors, by cause
}

// New returns a Service that decides and counts with node, which the caller starts and stops. It logs descriptors that
// it cannot decide on. It registers its metrics with the node, so a node can have only one Service.
func New(node *pop.Node, logger *slog.Logger) *Service {
	s := &Service{node: node, logger: logger, metrics: newMetrics(node.Registerer()), logs: map[string]*lograte.Limiter{}}
	for _, cause := range causes {
		s.logs[cause] = &lograte.Limiter{Every: time.Minute}
	}
	return s
}

// ShouldRateLimit applies to each descriptor the rule that it names. If any descriptor is over its limit, the request
// is over the limit, and counts for no descriptor. A descriptor that no rule can decide on is OK.
func (s *Service) ShouldRateLimit(_ context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	switch {
	case req.GetDomain() == "":
		return nil, s.invalid("the domain is empty")
	case len(req.GetDescriptors()) == 0:
		return nil, s.invalid("the request has no descriptors")
	}
	rules := s.node.Rules()
	var asks []pop.Ask
	var indexes []int // in the request, of the descriptors that asks are about
	for i, d := range req.GetDescriptors() {
		question, cause, why := ask(rules, req, d)
		if why == nil {
			asks, indexes = append(asks, question), append(indexes, i)
			continue
		}
		s.metrics.undecided[cause].Inc()
		var keys []string // values may be personal data
		for _, e := range d.GetEntries() {
			keys = append(keys, e.GetKey())
		}
		s.logs[cause].Log(s.logger, slog.LevelWarn, time.Now(), "a descriptor is not limited", "why", why, "domain", req.GetDomain(), "keys", keys)
	}
	decided := s.node.DecideBy(asks...)
	answer := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for range req.GetDescriptors() {
		answer.Statuses = append(answer.Statuses, &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK})
	}
	refused := slices.ContainsFunc(decided, func(a pop.Answer) bool { return a.Verdict.Refused() })
	if refused {
		answer.OverallCode = rls.RateLimitResponse_OVER_LIMIT
		answer.ResponseHeadersToAdd = refusalFields(decided)
	}
	for i := range decided {
		hits := asks[i].Rule.CostOf(asks[i].Times)
		if refused {
			hits = 0 // the refused request did not count
		}
		answer.Statuses[indexes[i]] = statusOf(&decided[i], hits)
	}
	s.metrics.requests[answer.OverallCode].Inc()
	return answer, nil
}

// invalid returns the error for a request that Envoy does not send, however it is configured.
func (s *Service) invalid(why string) error {
	s.metrics.invalid.Inc()
	return status.Error(codes.InvalidArgument, why)
}

// ask returns the question for the node about d, a descriptor of req, or a cause and why there can be no decision.
func ask(rules *rule.Set, req *rls.RateLimitRequest, d *ratelimit.RateLimitDescriptor) (question pop.Ask, cause string, why error) {
	r, request, cause, why := decodeDescriptor(rules, d)
	if why != nil {
		return pop.Ask{}, cause, why
	}
	hits := uint64(req.GetHitsAddend())
	_, report := value(d.GetEntries(), "report")
	if own := d.GetHitsAddend(); own != nil {
		hits = own.GetValue() // 0 asks without counting
	} else if report || !r.CountsAnswer() {
		hits = max(1, hits)
	}
	report = report || r.CountsAnswer() && hits > 0
	return pop.Ask{Rule: r, Request: request, Times: min(hits, rule.MaxThreshold), Listed: true, Report: report}, "", nil
}
