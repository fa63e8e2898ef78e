// Package steps names the steps of a session's life at which tests kill processes and cancel calls. It does nothing in other builds.
package steps

// A Step is passed when what it names has just happened.
type Step uint8

// The steps of a server's start, of a handshake, of sending and of receiving.
const (
	None Step = iota
	PathLocked
	Bound
	Connected
	HelloSent
	HelloReceived
	WelcomeSent
	WelcomeReceived
	RegionMapped
	RecordBegun
	RecordWritten
	RecordPublished
	Rung
	RecordSeen
	RecordTaken
	RoomReleased
	AreaSent
	Closing
	// End is behind the last.
	End
)
