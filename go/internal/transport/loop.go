package transport

import (
	"errors"
	"io"
	"time"

	"github.com/tollfree/tollfree/go/internal/device"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// run is the link's own goroutine. It returns when nothing of the session is left.
func (l *link) run() {
	go func() {
		defer close(l.life.unwatched)
		if l.conn.AwaitDeath() {
			// A child that the process forked may keep the socket open.
			l.hangUp("the peer's process has ended")
		}
	}()
	l.listen(firstLoop)
	<-l.life.cleaned
}

// listen sleeps in the poller until the peer rings, reads while there is something to read or somebody waits, and cleans up at
// the end. It returns early where another goroutine has taken its place.
func (l *link) listen(loop int) {
	bell := l.bellOf()
	// Nobody has said yet that nobody looks.
	if !l.serve(loop) {
		return
	}
	for !l.life.over() {
		err := bell.Await()
		if err == nil && l.areas.tooMany.Load() {
			err = rendezvous.ErrTooMany
		}
		switch {
		case err == nil:
			if !l.serve(loop) {
				return
			}
		case isViolation(err):
			l.mu.Lock()
			l.end(&session.Violation{Place: "socket", What: err.Error()}, true)
			l.unlock()
		case errors.Is(err, io.EOF):
			l.hangUp("the peer has hung up")
		default:
			l.hangUp("the peer is gone: " + err.Error())
		}
	}
	<-l.life.unwatched
	l.clean()
}

// isViolation says of what a socket reports that no correct peer has done it.
func isViolation(err error) bool {
	var wrong *device.Violation
	return errors.Is(err, rendezvous.ErrTooMany) || errors.As(err, &wrong)
}

// serve reads while there is something, or somebody waits; false: another goroutine has taken this one's place.
func (l *link) serve(loop int) bool {
	l.mu.Lock()
	if !l.reading.takeHanded() {
		if !l.tryRead() {
			l.mu.Unlock()
			return true
		}
		l.reading.woken()
	}
	l.bell.unpark()
	for {
		l.pass()
		yields := l.reading.tookRoused()
		if !l.arrivals.none() && !l.life.over() {
			// A handler that runs here may have to read for itself.
			l.reading.free()
			yields = l.deliver(loop) || yields
			if !l.reading.isLoop(loop) {
				l.unlock()
				return false
			}
			if !l.tryRead() {
				break
			}
			l.bell.unpark()
		}
		if l.life.over() || l.role == wire.Client && !l.reading.awaited() {
			l.leave()
			break
		}
		l.unlock()
		at := l.bell.awaited()
		if l.role == wire.Server {
			at = nobody
		}
		found := l.reading.look(l.there, at, yields, l.rings.peerCPU())
		l.mu.Lock()
		if !found && l.park() {
			break
		}
	}
	l.unlock()
	return true
}

// takeRole waits for the reading role, which nobody keeps for long once the session is over or the peer is silent. The caller
// has the lock afterwards, too.
func (l *link) takeRole() {
	for {
		l.mu.Lock()
		if l.reading.takeHanded() || l.reading.take() {
			return
		}
		l.mu.Unlock()
		time.Sleep(50 * time.Microsecond)
	}
}

// hangUp ends the session after what the peer had published before it went.
func (l *link) hangUp(why string) {
	l.takeRole()
	if !l.life.over() {
		l.receive(wire.RingLenMax / wire.LineLen)
		l.collect()
		l.end(&session.Closed{ByPeer: true, Text: why}, false)
	}
	l.reading.free()
	l.deliver(0)
	l.unlock()
}

// clean gives back what the session has taken, when nobody uses it any more.
func (l *link) clean() {
	l.takeRole()
	l.deliver(0)
	l.settle()
	l.settleSocket()
	l.lending.leave()
	l.rings.unmap()
	l.areas.unmapAll()
	l.mu.Unlock()
	l.conn.Close()
	if l.host.ended != nil {
		l.host.ended(l)
	}
	close(l.life.cleaned)
}
