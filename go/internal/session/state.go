package session

import "github.com/tollfree/tollfree/go/internal/wire"

// A Phase is a state of spec/wire.md, section 9; the client's are the first four, the server's the next four.
type Phase uint8

// The states' names are the specification's.
const (
	Asking Phase = iota
	Asked
	Talking
	Listening
	Hearing
	Heard
	Conversing
	Answering
	Over
	// no is where an event leads that may not happen.
	no
)

// An Event is what happens to a stream: heard from the peer, or said to it. CREDIT changes no state.
type Event uint8

// Columns of the specification's tables.
const (
	HeardHeaders Event = iota
	HeardMessage
	HeardHalfClose
	HeardTrailers
	HeardCancel
	SaidHeaders
	SaidMessage
	SaidHalfClose
	SaidTrailers
	SaidCancel
	eventCount
)

// transitions are the tables of section 9; a test compares every cell with the document. What the head of a frame rules out
// already, an event of the other role or an opening out of turn, leads to no as well.
var transitions = [no][eventCount]Phase{
	//          ?HEADERS   ?MESSAGE    ?HALF_CLOSE ?TRAILERS ?CANCEL !HEADERS   !MESSAGE    !HALF_CLOSE !TRAILERS !CANCEL
	Asking:     {Talking, no, no, Over, Over, no, Asking, Asked, no, Over},
	Asked:      {Listening, no, no, Over, Over, no, no, no, no, Over},
	Talking:    {no, Talking, no, Over, Over, no, Talking, Listening, no, Over},
	Listening:  {no, Listening, no, Over, Over, no, no, no, no, Over},
	Hearing:    {no, Hearing, Heard, no, Over, Conversing, no, no, Over, Over},
	Heard:      {no, no, no, no, Over, Answering, no, no, Over, Over},
	Conversing: {no, Conversing, Answering, no, Over, no, Conversing, no, Over, Over},
	Answering:  {no, no, no, no, Over, no, Answering, no, Over, Over},
	Over:       {no, no, no, no, Over, no, no, no, no, no},
}

// State is what the two ends of a stream may still say. Either direction may be within a message.
type State struct {
	phase           Phase
	inSent, inHeard bool
	unheard         uint32
}

// Opened is the state of a call that has just been opened, at this end of the session.
func Opened(role wire.Role) State {
	if role == wire.Client {
		return State{phase: Asking}
	}
	return State{phase: Hearing}
}

// Phase is where the stream stands, between messages and within.
func (s *State) Phase() Phase { return s.phase }

// Live says whether the call is under way.
func (s *State) Live() bool { return s.phase != Over }

// MaySay says whether this event may be said now.
func (s *State) MaySay(event Event) bool { return transitions[s.phase][event] != no }

// SaidAll says whether this end says no more.
func (s *State) SaidAll() bool { return s.phase == Asked || s.phase == Listening || s.phase == Over }

// Do takes an event; false: it may not happen now, and nothing has changed.
func (s *State) Do(event Event) bool {
	next := transitions[s.phase][event]
	if next == no {
		return false
	}
	switch event {
	case HeardHalfClose:
		if s.inHeard {
			return false
		}
	case SaidHalfClose:
		if s.inSent {
			return false
		}
	}
	s.phase = next
	return true
}

// HeardOK says whether the server may say that all is well: not within a message.
func (s *State) HeardOK() bool { return !s.inHeard }

// HeardChunk takes a chunk of n bytes of a message, of messageLen bytes in all where it is the first; false: it doesn't fit
// what has come of the message, and nothing has changed.
func (s *State) HeardChunk(first, last bool, n, messageLen uint32) bool {
	left := s.unheard
	if first {
		left = messageLen
	}
	if first == s.inHeard || n > left || last != (n == left) || n == 0 && left != 0 {
		return false
	}
	s.inHeard, s.unheard = !last, left-n
	return true
}

// BetweenHeard says whether no message that comes is begun.
func (s *State) BetweenHeard() bool { return !s.inHeard }

// SaidChunk notes that a chunk was sent, and whether its message goes on.
func (s *State) SaidChunk(goesOn bool) { s.inSent = goesOn }

// BetweenSaid says whether no message that goes is begun.
func (s *State) BetweenSaid() bool { return !s.inSent }
