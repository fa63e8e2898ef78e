package tollfree

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	rules "github.com/tollfree/tollfree/go/internal/balancer"
)

// policies are those of loadBalancingConfig, by name.
var policies = map[string]rules.Policy{
	"pick_first": rules.PickFirst, "round_robin": rules.RoundRobin, "least_outstanding": rules.LeastOutstanding,
}

// outlierDetection is the name by which gRPC's libraries know outlier detection.
const outlierDetection = "outlier_detection_experimental"

// loadBalancing reads loadBalancingConfig, or the older field that has a name alone.
func (raw *jsonConfig) loadBalancing(config *serviceConfig) (err error) {
	if len(raw.LoadBalancingConfig) > 0 {
		config.balance, config.outliers, err = readPolicies("loadBalancingConfig", raw.LoadBalancingConfig)
		return err
	}
	if raw.LoadBalancingPolicy != nil {
		name := strings.ToLower(*raw.LoadBalancingPolicy)
		known := false
		if config.balance, known = policies[name]; !known {
			return unknownPolicies("loadBalancingPolicy", name)
		}
	}
	return nil
}

// readPolicies gives the first policy of a list that is known here.
func readPolicies(field string, list []map[string]json.RawMessage) (policy rules.Policy, outliers *rules.OutlierDetection, err error) {
	var names []string
	for _, entry := range list {
		if len(entry) != 1 {
			return 0, nil, fmt.Errorf("tollfree: service config: %s has an entry of %d policies: each has one", field, len(entry))
		}
		for name, settings := range entry {
			if policy, known := policies[name]; known {
				return policy, nil, nil
			}
			if name == outlierDetection && field != "childPolicy" {
				return readOutlierDetection(settings)
			}
			names = append(names, name)
		}
	}
	return 0, nil, unknownPolicies(field, names...)
}

func unknownPolicies(field string, names ...string) error {
	return fmt.Errorf("tollfree: service config: %s has %q, but no policy that Tollfree serves: pick_first, round_robin, least_outstanding, %s", field, names, outlierDetection)
}

// jsonOutliers is gRFC A50's config in JSON, with a rule of ours.
type jsonOutliers struct {
	Interval            *string `json:"interval"`
	BaseEjectionTime    *string `json:"baseEjectionTime"`
	MaxEjectionTime     *string `json:"maxEjectionTime"`
	MaxEjectionPercent  *uint32 `json:"maxEjectionPercent"`
	SuccessRateEjection *struct {
		StdevFactor           *uint32 `json:"stdevFactor"`
		EnforcementPercentage *uint32 `json:"enforcementPercentage"`
		MinimumHosts          *uint32 `json:"minimumHosts"`
		RequestVolume         *uint32 `json:"requestVolume"`
	} `json:"successRateEjection"`
	FailurePercentageEjection *struct {
		Threshold             *uint32 `json:"threshold"`
		EnforcementPercentage *uint32 `json:"enforcementPercentage"`
		MinimumHosts          *uint32 `json:"minimumHosts"`
		RequestVolume         *uint32 `json:"requestVolume"`
	} `json:"failurePercentageEjection"`
	ConsecutiveFailureEjection *struct {
		Threshold             *uint32 `json:"threshold"`
		EnforcementPercentage *uint32 `json:"enforcementPercentage"`
	} `json:"consecutiveFailureEjection"`
	ChildPolicy []map[string]json.RawMessage `json:"childPolicy"`
}

// settings collects the first thing that is wrong with a config.
type settings struct{ err error }

func (s *settings) wrong(field, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("tollfree: service config: %s: %s %s", outlierDetection, field, fmt.Sprintf(format, args...))
	}
}

func (s *settings) duration(field string, text *string, into *time.Duration) {
	if text == nil {
		return
	}
	d, err := parseDuration(*text)
	if err != nil {
		s.wrong(field, "is wrong: %v", err)
	}
	*into = d
}

func (s *settings) number(value *uint32, into *uint32) {
	if value != nil {
		*into = *value
	}
}

func (s *settings) percentage(field string, value *uint32, into *uint32) {
	if s.number(value, into); *into > 100 {
		s.wrong(field, "is %d: it must be 0 to 100", *into)
	}
}

func readOutlierDetection(text json.RawMessage) (policy rules.Policy, outliers *rules.OutlierDetection, err error) {
	var raw jsonOutliers
	if err := json.Unmarshal(text, &raw); err != nil {
		return 0, nil, fmt.Errorf("tollfree: service config: %s can't be read: %w", outlierDetection, err)
	}
	s, d := settings{}, rules.DefaultOutlierDetection()
	s.duration("interval", raw.Interval, &d.Interval)
	s.duration("baseEjectionTime", raw.BaseEjectionTime, &d.BaseEjectionTime)
	s.duration("maxEjectionTime", raw.MaxEjectionTime, &d.MaxEjectionTime)
	s.percentage("maxEjectionPercent", raw.MaxEjectionPercent, &d.MaxEjectionPercent)
	if from := raw.SuccessRateEjection; from != nil {
		rule := rules.DefaultSuccessRate()
		s.number(from.StdevFactor, &rule.StdevFactor)
		s.percentage("successRateEjection.enforcementPercentage", from.EnforcementPercentage, &rule.EnforcementPercentage)
		s.number(from.MinimumHosts, &rule.MinimumHosts)
		s.number(from.RequestVolume, &rule.RequestVolume)
		d.SuccessRate = &rule
	}
	if from := raw.FailurePercentageEjection; from != nil {
		rule := rules.DefaultFailurePercentage()
		s.percentage("failurePercentageEjection.threshold", from.Threshold, &rule.Threshold)
		s.percentage("failurePercentageEjection.enforcementPercentage", from.EnforcementPercentage, &rule.EnforcementPercentage)
		s.number(from.MinimumHosts, &rule.MinimumHosts)
		s.number(from.RequestVolume, &rule.RequestVolume)
		d.FailurePercentage = &rule
	}
	if from := raw.ConsecutiveFailureEjection; from != nil {
		rule := rules.DefaultConsecutiveFailures()
		s.number(from.Threshold, &rule.Threshold)
		s.percentage("consecutiveFailureEjection.enforcementPercentage", from.EnforcementPercentage, &rule.EnforcementPercentage)
		d.ConsecutiveFailures = &rule
	}
	if s.err != nil {
		return 0, nil, s.err
	}
	policy, _, err = readPolicies("childPolicy", raw.ChildPolicy)
	return policy, &d, err
}
