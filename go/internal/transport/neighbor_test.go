package transport

import (
	"testing"
	"time"

	"github.com/tollfree/tollfree/go/internal/call"
)

// paced is the processor time of both ends, in this process, while calls come seldom.
func paced(t *testing.T) (cost time.Duration) {
	t.Run("paced", func(t *testing.T) {
		client, _ := served(t, call.Service{Handler: echo}, Config{})
		calls := func(n int) {
			for range n {
				time.Sleep(time.Millisecond)
				if _, got, err := unary(within(t), client, "/a.B/C", 64); err != nil || len(got) != 64 {
					t.Fatal(err)
				}
			}
		}
		calls(100)
		before := used(t)
		calls(300)
		cost = used(t) - before
	})
	return cost
}

// TestCallsThatComeSeldomCostWhatSleepingCosts compares ends that decide by themselves with ends that never look.
func TestCallsThatComeSeldomCostWhatSleepingCosts(t *testing.T) {
	if !quotaAllows() {
		t.Skip("not run: under a quota nobody looks anyway")
	}
	allows := quotaAllows
	defer func() { quotaAllows = allows }()
	// Another process may disturb a round.
	least := func(round func(*testing.T) time.Duration) time.Duration {
		best := round(t)
		for range 4 {
			best = min(best, round(t))
		}
		return best
	}
	looking := least(paced)
	quotaAllows = func() bool { return false }
	sleeping := least(paced)
	if looking > sleeping*3/2 {
		t.Errorf("300 calls take %v of processor time, and %v where nobody looks", looking, sleeping)
	}
	t.Logf("300 calls: %v, and %v where nobody looks", looking, sleeping)
}
