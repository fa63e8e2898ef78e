package transport

import "context"

// await waits until ready says so, which is called with the lock held, as await is and returns, and not again once it has; it
// returns earlier only where ctx is done. It reads the ring by itself where nobody else does.
func (l *link) await(ctx context.Context, s *sleeper, ready func() bool) {
	for !ready() && ctx.Err() == nil {
		s.waited = true
		if !l.tryRead() {
			l.sleep(ctx, s)
		} else if l.read(ctx, s, ready) {
			return
		}
	}
}

// tryRead takes the reading role, if it is free. The caller holds the lock.
func (l *link) tryRead() bool { return !l.life.over() && l.reading.take() }

// read has the reading role until ready says so, or nothing comes. It says whether await is to return.
func (l *link) read(ctx context.Context, s *sleeper, ready func() bool) bool {
	l.bell.unpark()
	yields := false
	for {
		l.unlock()
		found := l.reading.look(l.there, l.bell.awaited(), yields, l.rings.peerCPU())
		l.mu.Lock()
		yields = false
		if found {
			l.pass()
			yields = l.reading.tookRoused()
			yields = l.deliver(0) || yields
		}
		if ready() || ctx.Err() != nil {
			l.leave()
			return true
		}
		if l.life.over() {
			l.leave()
			return false
		}
		if !found && l.park() {
			l.sleep(ctx, s)
			return false
		}
	}
}

// sleep sleeps until somebody rouses s. The caller holds the lock, and has it again afterwards.
func (l *link) sleep(ctx context.Context, s *sleeper) {
	if s.loop != 0 && l.reading.isLoop(s.loop) {
		// A handler sleeps on the link's goroutine: another one listens to the socket from now on.
		go l.listen(l.reading.replace())
	}
	l.reading.begin(s)
	l.unlock()
	woken := false
	select {
	case <-s.wake:
		woken = true
	case <-ctx.Done():
	}
	l.mu.Lock()
	if !woken && !l.reading.giveUp(s) {
		<-s.wake
	}
	l.reading.done(s)
}

// park says that nobody looks at the ring any more, unless something is there. The caller holds the lock and the reading
// role, and gives the latter up where the answer is true.
func (l *link) park() bool {
	l.bell.park(l.room.lacking())
	if l.there() {
		l.bell.unpark()
		return false
	}
	l.reading.free()
	return true
}

// parkAgain parks for room too. Nobody has the reading role; if something is there, the link's goroutine gets it.
func (l *link) parkAgain() {
	l.bell.park(true)
	if l.there() && l.tryRead() {
		l.bell.unpark()
		l.handOver()
	}
}

// handOver gives the reading role, which the caller has, to the link's goroutine. The caller holds the lock.
func (l *link) handOver() {
	l.reading.hand()
	l.conn.Wake()
}

// leave gives the reading role up. The caller holds the lock, which is given up meanwhile where calls have come.
func (l *link) leave() {
	for !l.life.over() {
		if l.reading.awaited() {
			l.handOver()
			return
		}
		if l.park() {
			return
		}
		l.pass()
		// Who leaves does not come back to it.
		l.deliver(0)
	}
	l.reading.free()
}
