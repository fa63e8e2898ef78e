package tollfree

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// movesMax is how often a call without a deadline moves on from servers that have not looked at it, and once more for each
	// endpoint.
	movesMax = 16
	// movePauseMin and movePauseMax are the pauses between moves, from the second on.
	movePauseMin, movePauseMax = time.Millisecond, 4 * time.Millisecond
)

// A throttle keeps retries from making an outage worse (gRFC A6).
type throttle struct {
	mu     sync.Mutex
	tokens float64
	config throttling
}

func newThrottle(config throttling) *throttle {
	return &throttle{tokens: config.maxTokens, config: config}
}

// failed counts a failure, and is true where no retry may follow.
func (t *throttle) failed() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = max(t.tokens-1, 0)
	return t.tokens <= t.config.maxTokens/2
}

func (t *throttle) succeeded() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = min(t.tokens+t.config.tokenRatio, t.config.maxTokens)
}

// A retrier decides whether a call is made again.
type retrier struct {
	policy   *retryPolicy // nil: none
	throttle *throttle
	movesMax int
	deadline bool

	moves    int
	retries  int // of the policy; a move is none
	sinceAsk int // retries since the server asked for a pause
}

// move is for an attempt that no server has looked at. It returns the pause before the next one.
func (r *retrier) move() (pause time.Duration, ok bool) {
	r.moves++
	if !r.deadline && r.moves > r.movesMax {
		return 0, false
	}
	if r.moves == 1 {
		return 0, true
	}
	return backoff(movePauseMin, movePauseMax, r.moves-1), true
}

// retry is for an attempt that a server has answered without headers, or may have begun. It returns the pause before the next.
func (r *retrier) retry(s *status.Status, trailer metadata.MD) (pause time.Duration, ok bool) {
	asked := trailer[headerPushback]
	wait := 0
	if len(asked) > 0 {
		var err error
		if wait, err = strconv.Atoi(asked[0]); err != nil || wait < 0 || len(asked) > 1 {
			r.throttle.failed()
			return 0, false
		}
	}
	if r.policy == nil || !r.policy.codes[s.Code()] || r.throttle.failed() || r.retries+1 >= r.policy.attempts {
		return 0, false
	}
	r.retries++
	if len(asked) > 0 {
		r.sinceAsk = 0
		return time.Duration(wait) * time.Millisecond, true
	}
	growth := math.Pow(r.policy.multiplier, float64(r.sinceAsk))
	r.sinceAsk++
	pause = time.Duration(min(float64(r.policy.initial)*growth, float64(r.policy.max)))
	return time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64())), true
}
