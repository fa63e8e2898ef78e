package transport

import (
	"runtime"
	"time"
)

const (
	// lookTime is how long to look before going to sleep: about what a wake-up costs both ends together.
	lookTime = 40 * time.Microsecond
	// looksPerTurn is how often to look before others have a turn on the processor.
	looksPerTurn = 24
	// contended is a turn that has taken so long that others must have had the processor; looking stops for a multiple of
	// that, and looksOffMax at most.
	contended     = 150 * time.Microsecond
	contendedRest = 10
	looksOffMax   = 40 * time.Millisecond
	// trustMax bounds how long the past speaks for looking, or against it.
	trustMax = 8
)

// A looker decides whether a reader looks for a while before it sleeps: where that has been worth it of late. It is the
// reader's own: its methods need the reading role.
type looker struct {
	// trust grows where what was awaited has come within lookTime.
	trust int
	off   time.Time
	began time.Time
}

func newLooker() looker { return looker{trust: trustMax / 2} }

// mayLook: with one processor, whoever is waited for can't run meanwhile.
var mayLook = runtime.NumCPU() > 1

// look looks until something is there, or it is time to sleep.
func (l *looker) look(there func() bool) bool {
	if there() {
		l.trust = min(l.trust+1, trustMax)
		return true
	}
	l.began = time.Now()
	if !mayLook || l.trust < 0 || l.began.Before(l.off) {
		return false
	}
	looks := looksPerTurn
	if runtime.GOMAXPROCS(0) == 1 {
		looks = 1
	}
	for last := l.began; ; {
		for range looks {
			if there() {
				l.trust = min(l.trust+1, trustMax)
				return true
			}
		}
		runtime.Gosched()
		now := time.Now()
		if turn := now.Sub(last); turn > contended {
			l.off = now.Add(min(turn*contendedRest, looksOffMax))
			return there()
		}
		if now.Sub(l.began) > lookTime {
			l.trust = max(l.trust-2, -trustMax)
			return false
		}
		last = now
	}
}

// slept notes that something has come while nobody looked, some time after look was called.
func (l *looker) slept() {
	if !l.began.IsZero() && l.trust < trustMax && time.Since(l.began) < 2*lookTime {
		l.trust = max(l.trust+2, 0)
	}
}
