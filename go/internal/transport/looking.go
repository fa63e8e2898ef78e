package transport

import (
	"runtime"
	"time"
)

const (
	// wakeMin and wakeMax bound what waking a peer is taken to take, wakeFirst is for as long as nothing is known.
	wakeMin   = 10 * time.Microsecond
	wakeFirst = 30 * time.Microsecond
	wakeMax   = 80 * time.Microsecond
	// looksPerTurn is how often to look before the time is looked at, and others may have a turn on the processor.
	looksPerTurn = 24
	// aloneTime is how long to look before other goroutines have a turn, where they have another processor: letting them
	// wakes a thread that looks for them, which takes longer than most answers.
	aloneTime = 16 * time.Microsecond
	// contended is a turn that has taken so long that others must have had the processor; looking stops for a multiple of
	// that, and looksOffMax at most.
	contended     = 200 * time.Microsecond
	contendedRest = 10
	looksOffMax   = 40 * time.Millisecond
	// trustMax bounds how long the past speaks for looking, or against it.
	trustMax = 8
	// waitsPerTrial is after how many waits without looking one looks again: two ends that sleep would never find out that
	// both need not.
	waitsPerTrial = 16
	// looksPerYield is after how many waits other goroutines have a turn though something has come each time.
	looksPerYield = 32
)

// A looker decides whether a reader looks for a while before it sleeps: as long as waking a peer takes, where what is awaited
// has come so soon of late. It is the reader's own: its methods need the reading role.
type looker struct {
	// trust grows where what was awaited has come in time.
	trust int
	// waits counts waits without looking, looks all.
	waits, looks int
	wakes        wakeCost
	off          time.Time
	began        time.Time
}

func newLooker() looker { return looker{trust: trustMax / 2} }

// look looks until something is there, or it is time to sleep. rang is when the peer was woken to do what is awaited, if it
// was. yields says that goroutines of this process have just got work. peerCPU is what the peer says of its processor.
func (l *looker) look(there func() bool, rang time.Time, yields bool, peerCPU uint32) bool {
	if l.looks++; l.looks%looksPerYield == 0 {
		yields = true
	}
	if yields {
		runtime.Gosched()
	}
	if there() {
		l.hit()
		return true
	}
	l.began = time.Now()
	if !mayLook(peerCPU) || l.began.Before(l.off) {
		return false
	}
	if l.trust < 0 {
		if l.waits++; l.waits%waitsPerTrial != 0 {
			return false
		}
	}
	looks, alone := looksPerTurn, aloneTime
	if runtime.GOMAXPROCS(0) == 1 {
		looks, alone = 1, 0
	}
	if yields {
		runtime.Gosched()
	}
	most := l.wakes.both()
	for last := l.began; ; {
		for range looks {
			if there() {
				l.hit()
				if !rang.IsZero() {
					l.wakes.add(last.Sub(rang))
				}
				return true
			}
		}
		if last.Sub(l.began) >= alone {
			runtime.Gosched()
		}
		now := time.Now()
		if turn := now.Sub(last); turn > contended {
			l.off = now.Add(min(turn*contendedRest, looksOffMax))
			return there()
		}
		if now.Sub(l.began) > most {
			l.trust = max(l.trust-2, -trustMax)
			return false
		}
		last = now
	}
}

func (l *looker) hit() { l.trust = min(max(l.trust+1, 1), trustMax) }

// slept notes that something has come while nobody looked, some time after look was called: what waking this side took is in
// that time, too.
func (l *looker) slept(rang time.Time) {
	if l.began.IsZero() {
		return
	}
	now := time.Now()
	if !rang.IsZero() {
		l.wakes.add(now.Sub(rang) / 2)
	}
	if now.Sub(l.began) < 2*l.wakes.both() {
		l.trust = min(max(l.trust+2, 0), trustMax)
	}
}

// wakeCost is what waking a process takes until that is felt, on average of late.
type wakeCost struct {
	mean time.Duration
}

func (w *wakeCost) add(sample time.Duration) {
	sample = min(max(sample, wakeMin), wakeMax)
	if w.mean == 0 {
		w.mean = sample
	}
	w.mean += (sample - w.mean) / 8
}

// both is what sleeping and being woken costs both ends.
func (w *wakeCost) both() time.Duration {
	if w.mean == 0 {
		return 2 * wakeFirst
	}
	return 2 * w.mean
}
