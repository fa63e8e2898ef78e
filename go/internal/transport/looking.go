package transport

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// wakeLook is how long to look where a wake-up is what is waited for, one's own or the peer's: what that costs both ends of processor
	// time. Who looked for as long as it takes would spend several times that.
	wakeLook = 10 * time.Microsecond
	// answerLook is how long to look for a peer that was awake, and is at work.
	answerLook = 60 * time.Microsecond
	// looksPerTurn is how often to look before the time is looked at, and others may have a turn on the processor.
	looksPerTurn = 24
	// aloneTime is how long to look before other goroutines have a turn, where they have another processor: letting them
	// wakes a thread that looks for them, which takes longer than most answers.
	aloneTime = 16 * time.Microsecond
	// aloneTimeOfOne is the same where there is one processor for all goroutines: what most answers take. A turn that has taken othersRan
	// says that others had something to do: for the next crowdedWaits waits they have turns at once.
	aloneTimeOfOne = 4 * time.Microsecond
	othersRan      = 2 * time.Microsecond
	crowdedWaits   = 16
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

// waitedFor is what a reader waits for.
type waitedFor uint8

const (
	// peerAtWork: an answer of a peer that was awake; peerAwake: of one that had to be rung; nobody: calls that may come.
	peerAtWork waitedFor = iota
	peerAwake
	nobody
)

// A looker decides whether a reader looks for a while before it sleeps, where what is awaited has come so soon of late. It is the
// reader's own: its methods need the reading role.
type looker struct {
	// trust grows where what was awaited has come in time.
	trust int
	// waits counts waits without looking, looks all.
	waits, looks int
	// crowded is for how many waits others have turns at once, where there is one processor.
	crowded int
	// off is until when not to look, began when look was called last; since linkEpoch, 0: never.
	off, began time.Duration
}

func newLooker() looker { return looker{trust: trustMax / 2} }

// look looks until something is there, or it is time to sleep. at says what is waited for. yields says that goroutines of this process
// have just got work. peerCPU is what the peer says of its processor.
func (l *looker) look(there func() bool, at waitedFor, yields bool, peerCPU uint32) bool {
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
	l.began = monotonic()
	if !mayLook(peerCPU) || l.began < l.off {
		return false
	}
	if l.trust < 0 {
		if l.waits++; l.waits%waitsPerTrial != 0 {
			return false
		}
	}
	looks, alone := looksPerTurn, aloneTime
	if oneProcessor() {
		alone = aloneTimeOfOne
		if l.crowded > 0 {
			l.crowded--
			looks, alone = 1, 0
		}
	}
	if yields {
		runtime.Gosched()
	}
	most := answerLook
	if at != peerAtWork {
		most = wakeLook
	}
	for last := l.began; ; {
		for range looks {
			if there() {
				l.hit()
				return true
			}
		}
		now := monotonic()
		if now-l.began >= alone {
			before := now
			runtime.Gosched()
			if now = monotonic(); now-before > othersRan {
				l.crowded = crowdedWaits
			}
		}
		if turn := now - last; turn > contended {
			l.off = now + min(turn*contendedRest, looksOffMax)
			return there()
		}
		if now-l.began > most {
			l.trust = max(l.trust-2, -trustMax)
			return false
		}
		last = now
	}
}

func (l *looker) hit() { l.trust = min(max(l.trust+1, 1), trustMax) }

// slept notes that something has come while nobody looked, some time after look was called: what waking this side took is in
// that time, too.
func (l *looker) slept() {
	if l.began != 0 && monotonic()-l.began < 2*wakeLook {
		l.trust = min(max(l.trust+2, 0), trustMax)
	}
}

// oneProcessor says whether all goroutines share one processor. Package runtime takes a lock to tell, so it is not asked each time.
func oneProcessor() bool {
	if processorsAsked.Add(1)%processorsFresh == 1 {
		processors.Store(int32(runtime.GOMAXPROCS(0)))
	}
	return processors.Load() == 1
}

// processorsFresh is for how many waits the number of processors is taken to be the same.
const processorsFresh = 64

var (
	processors      atomic.Int32
	processorsAsked atomic.Uint32
)
