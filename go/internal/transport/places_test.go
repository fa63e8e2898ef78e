package transport

import (
	"strings"
	"sync"
	"testing"
)

// However many come at once, and whatever becomes of their handshakes, no process has more than its part, and all have no more than there are.
func TestPlacesAreTakenBeforeTheHandshake(t *testing.T) {
	const most = 40
	var p places
	var mu sync.Mutex
	var leave []func()
	refusals := map[string]int{}
	var all sync.WaitGroup
	for pid := range int32(3) {
		for range most/2 + 10 {
			all.Go(func() {
				left, busy := p.take(pid, most)
				mu.Lock()
				defer mu.Unlock()
				if busy != nil {
					refusals[strings.Fields(busy.Text)[0]]++
				} else {
					leave = append(leave, left)
				}
			})
		}
	}
	all.Wait()
	if len(leave) != most {
		t.Errorf("%d places were taken of %d", len(leave), most)
	}
	for pid := range int32(3) {
		if own := p.byProcess[pid]; own > most/2 {
			t.Errorf("process %d has %d of %d places", pid, own, most)
		}
	}
	for _, left := range leave {
		left()
	}
	if p.all != 0 || len(p.byProcess) != 0 {
		t.Errorf("%d places of %d processes are left", p.all, len(p.byProcess))
	}
	if _, busy := p.take(7, most); busy != nil {
		t.Error(busy)
	}
}
