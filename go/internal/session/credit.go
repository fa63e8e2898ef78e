package session

import "github.com/tollfree/tollfree/go/internal/wire"

// owe notes that a chunk of a live stream was read, and grants what is owed once it is half a window: spec/wire.md, section
// 13, the receiver's rule. A stream whose reader keeps up gets a larger window, out of what the session has to spare.
func (s *Session) owe(st *Stream, cost uint64) {
	s.oweSession(cost)
	if st.heardAll {
		return
	}
	st.owed += cost
	if st.owed < st.window/2 {
		return
	}
	grant := st.owed
	st.owed = 0
	if !st.HasChunk() && st.window < wire.StreamWindowMax {
		raise := min(st.window, wire.StreamWindowMax-st.window, s.reserve)
		s.reserve -= raise
		st.window += raise
		grant += raise
	}
	st.recvCredit += grant
	s.grant(st.id, grant)
}

// lend has the peer send the rest of a message that is longer than its credit, n bytes, without waiting until it is read: as
// far as the session has credit to spare.
func (s *Session) lend(st *Stream, n uint32) {
	// Chunks are long in a payload area, and short without.
	wanted := uint64(n) + uint64(n)/128 + 4*wire.ChunkCharge
	if wanted <= st.recvCredit || st.window >= wire.MessageWindowMax {
		return
	}
	raise := min(wanted-st.recvCredit, wire.MessageWindowMax-st.window, s.reserve)
	if raise == 0 {
		return
	}
	s.reserve -= raise
	st.window += raise
	st.recvCredit += raise
	s.grant(st.id, raise)
}

// oweSession notes that bytes were read, or dropped.
func (s *Session) oweSession(cost uint64) {
	s.owed += cost
	s.grantSession()
}

// grantSession grants what is owed to the session once it is much, or as much as the peer has left: were it kept back while
// streams that nobody reads hold the rest, they would keep up the others.
func (s *Session) grantSession() {
	if s.owed == 0 || s.owed < s.local.SessionWindow/2 && s.owed < s.recvCredit {
		return
	}
	grant := s.owed
	s.owed = 0
	s.recvCredit += grant
	if s.closed == nil {
		s.grant(0, grant)
	}
}

// grant has CREDIT sent; a grant to the same that still waits for room takes it along.
func (s *Session) grant(id, amount uint64) {
	waiting := s.pending.All()
	for i := range waiting {
		if head := &waiting[i]; head.Events == wire.Credit && head.Stream == id {
			add := min(amount, uint64(^head.ChunkLen))
			head.ChunkLen += uint32(add)
			amount -= add
		}
	}
	for amount > 0 {
		part := min(amount, 1<<32-1)
		amount -= part
		s.pending.Push(wire.Head{Events: wire.Credit, Stream: id, ChunkLen: uint32(part)})
	}
}

// chargeSession takes what a chunk costs from what the peer has left.
func (s *Session) chargeSession(n uint32) error {
	cost := uint64(n) + wire.ChunkCharge
	if cost > s.recvCredit {
		return violation("credit", "a chunk of %d bytes, where the session's credit is %d", n, s.recvCredit)
	}
	s.recvCredit -= cost
	s.grantSession()
	return nil
}

func (s *Session) receiveCredit(head *wire.Head) error {
	amount := uint64(head.ChunkLen)
	if head.Stream == 0 {
		if s.sendCredit+amount < amount {
			return violation("credit", "a grant to the session that takes its credit beyond 2^64 - 1")
		}
		s.sendCredit += amount
		if s.short {
			s.short = false
			s.streams.each(s.hasCredit)
		}
		return nil
	}
	if err := s.checkID(head.Stream); err != nil {
		return err
	}
	st := s.streams.get(head.Stream)
	if st == nil || !st.state.Live() {
		return nil
	}
	if st.sendCredit+amount < amount {
		return violation("credit", "a grant to stream %d that takes its credit beyond 2^64 - 1", st.id)
	}
	st.sendCredit += amount
	s.hasCredit(st)
	return nil
}

func (s *Session) hasCredit(st *Stream) {
	if st.wantsCredit {
		st.wantsCredit = false
		s.enqueue(st)
	}
}

// enqueue has Flush try a stream.
func (s *Session) enqueue(st *Stream) {
	if !st.queued {
		st.queued = true
		s.queue.Push(st)
	}
}
