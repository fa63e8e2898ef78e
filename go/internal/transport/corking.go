package transport

import (
	"time"

	"github.com/tollfree/tollfree/go/internal/session"
)

const (
	// corkTime is how soon after the last flush a stream's next message waits for others.
	corkTime = 20 * time.Microsecond
	// corkMax is how many bytes wait at most: what goes into one record.
	corkMax = 8192
)

// A cork keeps messages back that a stream sends one after the other, so that many go in one record. What is kept back goes when a goroutine
// of this session waits or ends a call, when it is much, or when the goroutine runs that was made for it: that is, once the sender lets
// others run.
//
// Invariant: while something is kept back, a goroutine is under way to uncork. The link's lock guards all.
type cork struct {
	kept bool
	// flushed is when messages were sent last, since linkEpoch.
	flushed time.Duration
}

// unlockAfterSending gives the lock back after a message was given to the session. waited says that the call's goroutines have waited for the
// peer since the message before: what they send now is awaited there.
func (l *link) unlockAfterSending(st *session.Stream, waited bool) {
	c := &l.cork
	if !waited && st.Unsent() < corkMax {
		if c.kept {
			l.mu.Unlock()
			return
		}
		if monotonic()-c.flushed < corkTime {
			c.kept = true
			l.mu.Unlock()
			go l.uncork()
			return
		}
	}
	c.flushed = monotonic()
	l.unlock()
}

// unlockAfterTaking gives the lock back after a message was taken that was there already.
func (l *link) unlockAfterTaking() {
	if l.cork.kept {
		l.mu.Unlock()
		return
	}
	l.unlock()
}

// uncork sends what was kept back.
func (l *link) uncork() {
	l.mu.Lock()
	l.cork.kept = false
	l.cork.flushed = monotonic()
	l.unlock()
}
