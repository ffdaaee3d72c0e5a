package envoy

import (
	"math"
	"slices"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/pop"
)

// units are RLS's names for the periods of rules.
var units = map[time.Duration]rls.RateLimitResponse_RateLimit_Unit{
	time.Second:        rls.RateLimitResponse_RateLimit_SECOND,
	time.Minute:        rls.RateLimitResponse_RateLimit_MINUTE,
	time.Hour:          rls.RateLimitResponse_RateLimit_HOUR,
	24 * time.Hour:     rls.RateLimitResponse_RateLimit_DAY,
	7 * 24 * time.Hour: rls.RateLimitResponse_RateLimit_WEEK,
}

// statusOf returns the status of a descriptor that was counted this many times. It has the limit with the fewest
// remaining requests of those of the descriptor's rule, or no limit if clients must not notice the rule.
func statusOf(a *pop.Answer, hits uint64) *rls.RateLimitResponse_DescriptorStatus {
	status := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	var remaining uint64
	var reset time.Duration
	for _, q := range a.Quotas {
		left, falls := q.Remaining, q.Reset
		if !q.Known { // no request was counted yet
			left, falls = q.Limit.Threshold-min(q.Limit.Threshold, hits), q.Limit.Period
		}
		if status.CurrentLimit != nil && left >= remaining {
			continue
		}
		remaining, reset = left, falls
		status.CurrentLimit = &rls.RateLimitResponse_RateLimit{Name: q.Rule.ID, RequestsPerUnit: clamp(q.Limit.Threshold), Unit: units[q.Limit.Period]}
	}
	if a.Verdict.Refused() {
		status.Code, remaining, reset = rls.RateLimitResponse_OVER_LIMIT, 0, a.RetryAfter
	}
	if reset > 0 {
		status.LimitRemaining = clamp(remaining)
		status.DurationUntilReset = &durationpb.Duration{Seconds: seconds(reset)}
	}
	return status
}

// seconds rounds d up, so that a client that waits this long does not return too early.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// refusalFields returns the header fields that tell the client when to retry, and the ID of the refusal: those of the
// first refusal that the client may notice.
func refusalFields(answers []pop.Answer) []*core.HeaderValue {
	i := slices.IndexFunc(answers, func(a pop.Answer) bool { return a.Verdict.Refused() && !a.Verdict.Action().Hides() })
	if i < 0 {
		return nil
	}
	a, fields := &answers[i], []*core.HeaderValue(nil)
	if a.ID != (limit.ID{}) {
		fields = append(fields, &core.HeaderValue{Key: "refusal-id", Value: a.ID.String()})
	}
	if a.Verdict != limit.Denied {
		fields = append(fields, &core.HeaderValue{Key: "retry-after", Value: strconv.FormatInt(seconds(a.RetryAfter), 10)})
	}
	return fields
}

func clamp(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
