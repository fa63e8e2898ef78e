package tollfree

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	rules "github.com/tollfree/tollfree/go/internal/balancer"
)

// attemptsMax is the most attempts that a retry policy gets, as in grpc.
const attemptsMax = 5

// serviceConfig is gRPC's service config (grpc.service_config.ServiceConfig in JSON).
type serviceConfig struct {
	balance    rules.Policy
	outliers   *rules.OutlierDetection  // nil: no endpoint is ejected
	methods    map[string]*methodConfig // by path; "/service/" and "" are defaults
	throttling *throttling
	// healthService is the service whose health is checked, "" for the whole server; nil: none is.
	healthService *string
}

type methodConfig struct {
	timeout      time.Duration // 0: none
	hasTimeout   bool
	waitForReady *bool
	requestMax   *int
	responseMax  *int
	retry        *retryPolicy
}

type retryPolicy struct {
	attempts   int
	initial    time.Duration
	max        time.Duration
	multiplier float64
	codes      map[codes.Code]bool
}

type throttling struct{ maxTokens, tokenRatio float64 }

var noMethodConfig methodConfig

// method is the config of the method at path: its own, its service's, or the default.
func (c *serviceConfig) method(path string) *methodConfig {
	if len(c.methods) == 0 {
		return &noMethodConfig
	}
	if m := c.methods[path]; m != nil {
		return m
	}
	if m := c.methods[path[:strings.LastIndexByte(path, '/')+1]]; m != nil {
		return m
	}
	if m := c.methods[""]; m != nil {
		return m
	}
	return &noMethodConfig
}

type jsonConfig struct {
	LoadBalancingPolicy *string                      `json:"loadBalancingPolicy"`
	LoadBalancingConfig []map[string]json.RawMessage `json:"loadBalancingConfig"`
	MethodConfig        []jsonMethodConfig           `json:"methodConfig"`
	RetryThrottling     *struct {
		MaxTokens  float64 `json:"maxTokens"`
		TokenRatio float64 `json:"tokenRatio"`
	} `json:"retryThrottling"`
	HealthCheckConfig struct {
		ServiceName *string `json:"serviceName"`
	} `json:"healthCheckConfig"`
}

type jsonMethodConfig struct {
	Name []struct {
		Service string `json:"service"`
		Method  string `json:"method"`
	} `json:"name"`
	Timeout                 *string         `json:"timeout"`
	WaitForReady            *bool           `json:"waitForReady"`
	MaxRequestMessageBytes  *json.Number    `json:"maxRequestMessageBytes"`
	MaxResponseMessageBytes *json.Number    `json:"maxResponseMessageBytes"`
	RetryPolicy             *jsonRetry      `json:"retryPolicy"`
	HedgingPolicy           json.RawMessage `json:"hedgingPolicy"`
}

type jsonRetry struct {
	MaxAttempts          int          `json:"maxAttempts"`
	InitialBackoff       string       `json:"initialBackoff"`
	MaxBackoff           string       `json:"maxBackoff"`
	BackoffMultiplier    float64      `json:"backoffMultiplier"`
	RetryableStatusCodes []codes.Code `json:"retryableStatusCodes"`
}

// parseServiceConfig refuses fields that would change calls and aren't served, and ignores unknown ones, as gRPC asks.
func parseServiceConfig(text string) (*serviceConfig, error) {
	var raw jsonConfig
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf("tollfree: the service config is no JSON of gRPC's: %w", err)
	}
	config := &serviceConfig{methods: map[string]*methodConfig{}, healthService: raw.HealthCheckConfig.ServiceName}
	var err error
	if err = raw.loadBalancing(config); err != nil {
		return nil, err
	}
	for i := range raw.MethodConfig {
		if err := raw.MethodConfig[i].addTo(config); err != nil {
			return nil, fmt.Errorf("tollfree: service config: methodConfig[%d]: %w", i, err)
		}
	}
	if t := raw.RetryThrottling; t != nil {
		if t.MaxTokens <= 0 || t.MaxTokens > 1000 {
			return nil, fmt.Errorf("tollfree: service config: retryThrottling.maxTokens is %v: it must be over 0, and 1000 at most", t.MaxTokens)
		}
		if t.TokenRatio <= 0 {
			return nil, fmt.Errorf("tollfree: service config: retryThrottling.tokenRatio is %v: it must be over 0", t.TokenRatio)
		}
		config.throttling = &throttling{maxTokens: t.MaxTokens, tokenRatio: t.TokenRatio}
	}
	return config, nil
}

func (raw *jsonMethodConfig) addTo(config *serviceConfig) error {
	if len(raw.HedgingPolicy) > 0 && string(raw.HedgingPolicy) != "null" {
		return fmt.Errorf("hedgingPolicy is not served: use retryPolicy")
	}
	m := &methodConfig{waitForReady: raw.WaitForReady}
	if raw.Timeout != nil {
		var err error
		if m.timeout, err = parseDuration(*raw.Timeout); err != nil {
			return fmt.Errorf("timeout: %w", err)
		}
		m.hasTimeout = true
	}
	var err error
	if m.requestMax, err = parseSize(raw.MaxRequestMessageBytes); err != nil {
		return fmt.Errorf("maxRequestMessageBytes: %w", err)
	}
	if m.responseMax, err = parseSize(raw.MaxResponseMessageBytes); err != nil {
		return fmt.Errorf("maxResponseMessageBytes: %w", err)
	}
	if raw.RetryPolicy != nil {
		if m.retry, err = raw.RetryPolicy.parse(); err != nil {
			return fmt.Errorf("retryPolicy: %w", err)
		}
	}
	for _, name := range raw.Name {
		path := ""
		switch {
		case name.Service != "":
			path = "/" + name.Service + "/" + name.Method
		case name.Method != "":
			return fmt.Errorf("name has the method %q and no service", name.Method)
		}
		if config.methods[path] != nil {
			return fmt.Errorf("name %q stands twice", path)
		}
		config.methods[path] = m
	}
	return nil
}

func (raw *jsonRetry) parse() (*retryPolicy, error) {
	policy := &retryPolicy{attempts: min(raw.MaxAttempts, attemptsMax), multiplier: raw.BackoffMultiplier, codes: map[codes.Code]bool{}}
	var err error
	if policy.initial, err = parseDuration(raw.InitialBackoff); err != nil {
		return nil, fmt.Errorf("initialBackoff: %w", err)
	}
	if policy.max, err = parseDuration(raw.MaxBackoff); err != nil {
		return nil, fmt.Errorf("maxBackoff: %w", err)
	}
	switch {
	case raw.MaxAttempts < 2:
		return nil, fmt.Errorf("maxAttempts is %d: it must be 2 or more", raw.MaxAttempts)
	case policy.initial <= 0 || policy.max <= 0:
		return nil, fmt.Errorf("initialBackoff and maxBackoff must be over 0")
	case policy.multiplier <= 0:
		return nil, fmt.Errorf("backoffMultiplier is %v: it must be over 0", policy.multiplier)
	case len(raw.RetryableStatusCodes) == 0:
		return nil, fmt.Errorf("retryableStatusCodes is empty")
	}
	for _, code := range raw.RetryableStatusCodes {
		policy.codes[code] = true
	}
	return policy, nil
}

// parseDuration takes protobuf's JSON of a duration: seconds, with up to nine decimals, and "s".
func parseDuration(text string) (time.Duration, error) {
	number, ok := strings.CutSuffix(text, "s")
	if !ok || number == "" || strings.Trim(number, "-.0123456789") != "" {
		return 0, fmt.Errorf("%q is no duration: write \"1.5s\"", text)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration: write \"1.5s\"", text)
	}
	return d, nil
}

// parseSize takes a number, or protobuf's JSON of an int64: a string of digits.
func parseSize(n *json.Number) (*int, error) {
	if n == nil {
		return nil, nil
	}
	value, err := n.Int64()
	if err != nil || value < 0 {
		return nil, fmt.Errorf("%q is no size in bytes", n.String())
	}
	size := int(min(value, math.MaxInt))
	return &size, nil
}
