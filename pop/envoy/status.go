package envoy

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/limit"
)

// units are the periods that RLS has names for and rules may have.
var units = map[time.Duration]rls.RateLimitResponse_RateLimit_Unit{
	time.Second:        rls.RateLimitResponse_RateLimit_SECOND,
	time.Minute:        rls.RateLimitResponse_RateLimit_MINUTE,
	time.Hour:          rls.RateLimitResponse_RateLimit_HOUR,
	24 * time.Hour:     rls.RateLimitResponse_RateLimit_DAY,
	7 * 24 * time.Hour: rls.RateLimitResponse_RateLimit_WEEK,
}

// statusOf returns the status of a descriptor that was counted this many times, with the limit of
// its rule that has the fewest requests left. Statuses by rules that clients must not notice have
// no limit.
func statusOf(a *pop.Answer, hits uint64) *rls.RateLimitResponse_DescriptorStatus {
	status := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	var remaining uint64
	var reset time.Duration
	for _, q := range a.Quotas {
		left, falls := q.Remaining, q.Reset
		if !q.Known { // no request was counted yet
			left, falls = q.Limit.Threshold, q.Limit.Period
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
		status.LimitRemaining = clamp(remaining - min(remaining, hits))
		status.DurationUntilReset = &durationpb.Duration{Seconds: seconds(reset)}
	}
	return status
}

// seconds rounds d up, so that a client that waits this long does not come too early.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// refusalID returns the field by which clients can say which refusal they mean, of the first of answers that
// has one and may show.
func refusalID(answers []pop.Answer) (all []*core.HeaderValue) {
	for i := range answers {
		if a := &answers[i]; a.ID != (limit.ID{}) && a.Verdict != limit.ShadowBanned {
			return []*core.HeaderValue{{Key: "refusal-id", Value: a.ID.String()}}
		}
	}
	return nil
}

func clamp(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// headers returns what clients are told of the status with the fewest requests left, as
// envoyproxy/ratelimit names it.
func headers(statuses []*rls.RateLimitResponse_DescriptorStatus) (all []*core.HeaderValue) {
	var least *rls.RateLimitResponse_DescriptorStatus
	for _, s := range statuses {
		if l := s.GetCurrentLimit(); l != nil && (least == nil || s.GetLimitRemaining() < least.GetLimitRemaining() || s.GetCode() > least.GetCode()) {
			least = s
		}
	}
	if least == nil {
		return nil
	}
	add := func(name string, value int64) {
		all = append(all, &core.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)})
	}
	reset := least.GetDurationUntilReset().GetSeconds()
	add("ratelimit-limit", int64(least.GetCurrentLimit().GetRequestsPerUnit()))
	add("ratelimit-remaining", int64(least.GetLimitRemaining()))
	add("ratelimit-reset", reset)
	if least.GetCode() == rls.RateLimitResponse_OVER_LIMIT {
		add("retry-after", reset)
	}
	return all
}
