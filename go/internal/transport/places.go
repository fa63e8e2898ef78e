package transport

import (
	"fmt"
	"sync"

	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// places are how many sessions a listener has, with those whose handshake is under way, and how many each process has of them.
type places struct {
	mu        sync.Mutex
	all       int
	byProcess map[int32]int
}

// take has a process have one more session of most, until leave is called; or it says why not.
func (p *places) take(pid int32, most int) (leave func(), busy *wire.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= most {
		return nil, &wire.Refusal{Reason: wire.ReasonBusy, Text: fmt.Sprintf("%d sessions are under way, which is the most", most)}
	}
	if own := p.byProcess[pid]; own >= max(most/2, 1) {
		return nil, &wire.Refusal{Reason: wire.ReasonBusy, Text: fmt.Sprintf("process %d has %d sessions, which is the most", pid, own)}
	}
	if p.byProcess == nil {
		p.byProcess = map[int32]int{}
	}
	p.all++
	p.byProcess[pid]++
	return func() { p.leave(pid) }, nil
}

func (p *places) leave(pid int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.byProcess[pid]--; p.byProcess[pid] == 0 {
		delete(p.byProcess, pid)
	}
}

// sessionsMax leaves a quarter of this process's descriptors to others; a session takes two, and one more at its beginning.
func sessionsMax() int { return max(int(descriptorsMax()/4), 1) }

func descriptorsMax() uint64 {
	var limit system.Rlimit
	if err := system.Getrlimit(system.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return min(limit.Cur, 1<<20)
}
