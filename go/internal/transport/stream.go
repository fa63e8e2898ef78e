package transport

import (
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tollfree/tollfree/go/internal/device"
)

const (
	// silenceMax is how long a peer of another host is silent at most. beatTime is after which this side says that it is there.
	silenceMax = 20 * time.Second
	beatTime   = silenceMax / 4
	// farewellTime bounds what is sent at a session's end.
	farewellTime = time.Second
	// receiveLen is how much is received at once.
	receiveLen = 16 << 10
)

// A stream is a connection to another host, by which the rings of a session are kept alike: spec/device.md, section 11. To ring the peer is
// to send what was published; to be rung is to have been sent something.
//
// Invariant: the goroutines in parts alone touch the window, and end after Shutdown.
type stream struct {
	conn   *tls.Conn
	window *device.Window
	// due says that there may be something to send, rung that something has come or that Wake was called.
	due, rung chan struct{}
	// closing is closed by Shutdown, over when nothing comes any more; err is why then.
	closing, over chan struct{}
	shutdown      sync.Once
	err           error
	parts         sync.WaitGroup
}

func newStream(conn *tls.Conn, window *device.Window) *stream {
	s := &stream{
		conn: conn, window: window, due: make(chan struct{}, 1), rung: make(chan struct{}, 1),
		closing: make(chan struct{}), over: make(chan struct{}),
	}
	s.parts.Go(s.receive)
	s.parts.Go(s.send)
	return s
}

// A process of another host has no number here, nor a user.
func (s *stream) PID() int32  { return 0 }
func (s *stream) UID() uint32 { return math.MaxUint32 }
func (s *stream) GID() uint32 { return math.MaxUint32 }

func (s *stream) Ring() { notify(s.due) }
func (s *stream) Wake() { notify(s.rung) }

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Await waits until something has come.
//
// Errors: io.EOF at the end, a *device.Violation, and what the connection says.
func (s *stream) Await() error {
	select {
	case <-s.rung:
		return nil
	case <-s.over:
		return s.err
	}
}

// Shutdown has what was published sent, and the connection closed.
func (s *stream) Shutdown() {
	s.shutdown.Do(func() {
		_ = s.conn.SetWriteDeadline(time.Now().Add(farewellTime))
		close(s.closing)
	})
}

func (s *stream) Close() {
	s.Shutdown()
	s.parts.Wait()
}

func (s *stream) AwaitDeath() bool { return false }

var errNoDescriptors = errors.New("descriptors do not travel to another host")

func (s *stream) SendDescriptor(int) error         { return errNoDescriptors }
func (s *stream) Drain(func(fd int)) (bool, error) { return false, nil }

// receive takes what comes, until the end.
func (s *stream) receive() {
	buffer := make([]byte, receiveLen)
	for {
		_ = s.conn.SetReadDeadline(time.Now().Add(silenceMax))
		n, err := s.conn.Read(buffer)
		if n > 0 {
			if wrong := s.window.Take(buffer[:n]); wrong != nil {
				err = wrong
			}
			notify(s.rung)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errors.New("the peer has been silent for too long")
		} else if errors.Is(err, net.ErrClosed) {
			err = io.EOF
		}
		s.err = err
		close(s.over)
		return
	}
}

// send sends what is published and passed, and beats, until Shutdown. It closes the connection, which ends receive.
func (s *stream) send() {
	defer s.conn.NetConn().Close()
	beats := time.NewTicker(beatTime)
	defer beats.Stop()
	var out []byte
	said, lost, closing := false, false, false
	for !closing {
		beat := false
		select {
		case <-s.due:
		case <-beats.C:
			beat = !said
			said = false
			s.window.Counted()
		case <-s.closing:
			closing = true
		}
		s.window.Rearm()
		for !lost {
			var some bool
			if out, some = s.window.Say(out[:0]); !some && !beat {
				break
			} else if !some {
				out = s.window.Beat(out)
			} else {
				said = true
			}
			beat = false
			// An error shows where the connection is read, too.
			_, err := s.conn.Write(out)
			lost = err != nil
		}
	}
	if !lost {
		_ = s.conn.CloseWrite()
	}
}
