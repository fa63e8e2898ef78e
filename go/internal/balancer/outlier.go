package balancer

import (
	"math"
	"time"
)

const (
	// intervalMin is what a shorter interval counts as.
	intervalMin = time.Millisecond
	// rounding is by how much equal rates may differ from their mean as it is computed.
	rounding = 1e-9
)

// OutlierDetection says when endpoints are ejected. The names, meanings and defaults are those of gRFC A50.
//
// A sweep is made at the end of each interval. Two algorithms of A50 look at the calls that have ended in it; a third, of consecutive
// failures, is looked at as soon as an endpoint's count is full. An ejected endpoint returns in the first sweep after its time: the base time
// multiplied with the number of its ejections, which falls by one in each sweep that finds it in use.
type OutlierDetection struct {
	// Interval is from one sweep to the next. One below a millisecond counts as a millisecond.
	Interval time.Duration
	// BaseEjectionTime is how long an endpoint is ejected for the first time, MaxEjectionTime at most; the base time counts if that is longer.
	BaseEjectionTime, MaxEjectionTime time.Duration
	// MaxEjectionPercent: no endpoint is ejected while so many percent of its priority's are. One may be, whatever this says, but for 0.
	MaxEjectionPercent uint32
	// Each of the rules may be nil: no endpoint is ejected by it.
	SuccessRate         *SuccessRateEjection
	FailurePercentage   *FailurePercentageEjection
	ConsecutiveFailures *ConsecutiveFailureEjection
}

// SuccessRateEjection ejects endpoints whose success rate is far below that of the others.
type SuccessRateEjection struct {
	// StdevFactor is by how many thousandths of the standard deviation a rate has to be below the mean.
	StdevFactor uint32
	// EnforcementPercentage is in how many of a hundred cases an outlier is ejected.
	EnforcementPercentage uint32
	// MinimumHosts is how many endpoints with enough calls have to be there, RequestVolume how many calls of one have to end in an interval.
	MinimumHosts, RequestVolume uint32
}

// FailurePercentageEjection ejects endpoints of whose calls too many fail.
type FailurePercentageEjection struct {
	// Threshold is the percentage that more have to fail than.
	Threshold uint32
	// The others are as of SuccessRateEjection.
	EnforcementPercentage, MinimumHosts, RequestVolume uint32
}

// ConsecutiveFailureEjection ejects endpoints whose calls fail one after the other. A50 has no such rule.
type ConsecutiveFailureEjection struct {
	// Threshold is how many calls have to fail without one that succeeds between them. 0: none are ejected.
	Threshold             uint32
	EnforcementPercentage uint32
}

// DefaultOutlierDetection has the defaults of A50, and no rule.
func DefaultOutlierDetection() OutlierDetection {
	return OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 10,
	}
}

// The defaults of the rules.
func DefaultSuccessRate() SuccessRateEjection { return SuccessRateEjection{1900, 100, 5, 100} }
func DefaultFailurePercentage() FailurePercentageEjection {
	return FailurePercentageEjection{85, 100, 5, 50}
}
func DefaultConsecutiveFailures() ConsecutiveFailureEjection {
	return ConsecutiveFailureEjection{5, 100}
}

// On says whether any endpoint may be ejected.
func (d *OutlierDetection) On() bool {
	return d != nil && (d.SuccessRate != nil || d.FailurePercentage != nil || d.consecutiveThreshold() > 0)
}

func (d *OutlierDetection) consecutiveThreshold() uint32 {
	if d.ConsecutiveFailures == nil {
		return 0
	}
	return d.ConsecutiveFailures.Threshold
}

func (d *OutlierDetection) interval() time.Duration { return max(d.Interval, intervalMin) }

// ejectionTime is how long an endpoint is ejected after so many ejections.
func (d *OutlierDetection) ejectionTime(ejections int64) time.Duration {
	longest := max(d.BaseEjectionTime, d.MaxEjectionTime)
	if d.BaseEjectionTime > 0 && ejections > int64(longest/d.BaseEjectionTime) {
		return longest
	}
	return time.Duration(ejections) * d.BaseEjectionTime
}

// A Cause is why an endpoint was ejected.
type Cause string

// The rules by which endpoints are ejected.
const (
	BySuccessRate         Cause = "success rate"
	ByFailurePercentage   Cause = "failure percentage"
	ByConsecutiveFailures Cause = "consecutive failures"
)

// An Event is what a sweep has changed: an endpoint gets no calls for some time, or, without a cause, gets calls again.
type Event struct {
	Address string
	Cause   Cause
	// For is how long; the endpoint returns in the first sweep after that.
	For time.Duration
}

// suspect is how an endpoint stands with the detection.
type suspect struct {
	address   string
	record    *Record
	ejected   bool
	since     time.Duration
	ejections int64
}

// sweep is over the endpoints of one priority.
type sweep struct {
	config   *OutlierDetection
	random   *random
	suspects []*suspect
	events   *[]Event
}

// lookAtAlarms looks at the endpoints whose calls have failed one after the other.
func (s *sweep) lookAtAlarms(now time.Duration) {
	rule := s.config.ConsecutiveFailures
	if rule == nil {
		return
	}
	for _, suspect := range s.suspects {
		if suspect.record.takeAlarm() && !s.full() {
			s.eject(suspect, ByConsecutiveFailures, rule.EnforcementPercentage, now)
		}
	}
}

// endInterval is the sweep at the end of an interval, and those of the intervals after it, in which no call has ended: missed of them.
func (s *sweep) endInterval(at time.Duration, missed int64) {
	volumes := make([]volume, len(s.suspects))
	for i, suspect := range s.suspects {
		volumes[i] = suspect.record.take()
	}
	if rule := s.config.SuccessRate; rule != nil {
		s.bySuccessRate(rule, volumes, at)
	}
	if rule := s.config.FailurePercentage; rule != nil {
		s.byFailurePercentage(rule, volumes, at)
	}
	interval := s.config.interval()
	for _, suspect := range s.suspects {
		idle := missed + 1
		if suspect.ejected {
			left := max(suspect.since+s.config.ejectionTime(suspect.ejections)-at, 0)
			// The first sweep that is not earlier than its time. A50 says later; its timers are never early, and always a little late.
			returns := int64((left + interval - 1) / interval)
			if returns > missed {
				continue
			}
			suspect.ejected = false
			suspect.record.forgive()
			*s.events = append(*s.events, Event{Address: suspect.address})
			idle = missed - returns
		}
		suspect.ejections = max(suspect.ejections-idle, 0)
	}
}

func (s *sweep) bySuccessRate(rule *SuccessRateEjection, volumes []volume, at time.Duration) {
	rate := func(v volume) float64 { return float64(v.successes) / float64(v.total()) }
	considered := withEnough(volumes, rule.RequestVolume)
	if len(considered) == 0 || len(considered) < int(rule.MinimumHosts) {
		return
	}
	mean, variance := 0.0, 0.0
	for _, i := range considered {
		mean += rate(volumes[i])
	}
	mean /= float64(len(considered))
	for _, i := range considered {
		variance += (rate(volumes[i]) - mean) * (rate(volumes[i]) - mean)
	}
	variance /= float64(len(considered))
	required := mean - math.Sqrt(variance)*(float64(rule.StdevFactor)/1000)
	for _, i := range considered {
		if s.full() {
			return
		}
		if rate(volumes[i])+rounding < required {
			s.eject(s.suspects[i], BySuccessRate, rule.EnforcementPercentage, at)
		}
	}
}

func (s *sweep) byFailurePercentage(rule *FailurePercentageEjection, volumes []volume, at time.Duration) {
	considered := withEnough(volumes, rule.RequestVolume)
	if len(considered) < int(rule.MinimumHosts) {
		return
	}
	for _, i := range considered {
		if s.full() {
			return
		}
		if 100*float64(volumes[i].failures)/float64(volumes[i].total()) > float64(rule.Threshold) {
			s.eject(s.suspects[i], ByFailurePercentage, rule.EnforcementPercentage, at)
		}
	}
}

// full says whether as many are ejected as may be.
func (s *sweep) full() bool {
	ejected := uint64(0)
	for _, suspect := range s.suspects {
		if suspect.ejected {
			ejected++
		}
	}
	return 100*ejected >= uint64(s.config.MaxEjectionPercent)*uint64(len(s.suspects))
}

func (s *sweep) eject(suspect *suspect, cause Cause, percentage uint32, now time.Duration) {
	// One ejection for one reason: what two rules find in one sweep, or calls that were under way, makes no second.
	if suspect.ejected || !s.random.hits(percentage) {
		return
	}
	suspect.ejected, suspect.since = true, now
	suspect.ejections++
	*s.events = append(*s.events, Event{suspect.address, cause, s.config.ejectionTime(suspect.ejections)})
}

// withEnough are the places of those with enough calls.
func withEnough(volumes []volume, requests uint32) (places []int) {
	for i, v := range volumes {
		if v.total() > 0 && v.total() >= uint64(requests) {
			places = append(places, i)
		}
	}
	return places
}
