package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// descriptorsMax is how many the kernel passes at once: what finds no room would be closed by the call that receives.
const descriptorsMax = 253

// doorbellsMax is how many bytes in one go a correct peer sends at most.
const doorbellsMax = 4096

// A Conn is a connected socket, and who is at its other end.
type Conn struct {
	conn  *net.UnixConn
	in    inbound
	raw   syscall.RawConn
	cred  system.Ucred
	pidfd *os.File
	ring  func(fd uintptr)
	bell  [1]byte
	// turnedOut says that TurnOut was called.
	turnedOut atomic.Bool
}

// NewConn takes a connection over, and closes it where it fails.
//
// Errors: the kernel does not say who is there; the process has ended.
func NewConn(conn *net.UnixConn) (*Conn, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	cred, pidfd, dead, err := peerOf(conn)
	if err == nil && dead {
		err = errors.New("the process at the other end has ended")
	}
	if err != nil {
		if pidfd >= 0 {
			system.Close(pidfd)
		}
		_ = conn.Close()
		return nil, err
	}
	c := &Conn{conn: conn, raw: raw, cred: *cred}
	c.ring = func(fd uintptr) {
		// A full buffer means that the peer has doorbells to hear already, an error that its end will be heard of.
		_ = system.Send(int(fd), c.bell[:], system.MSG_DONTWAIT|system.MSG_NOSIGNAL)
	}
	if pidfd >= 0 {
		// The poller takes what does not block.
		_ = system.SetNonblock(pidfd, true)
		c.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	}
	return c, nil
}

// Connect connects to a server.
//
// Errors: as the net package's; syscall.ENOENT, ECONNREFUSED, EACCES among them.
func Connect(ctx context.Context, address Address) (*Conn, error) {
	conn, err := address.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return NewConn(conn)
}

// PID, UID and GID are the peer's, as the kernel says.
func (c *Conn) PID() int32  { return c.cred.Pid }
func (c *Conn) UID() uint32 { return c.cred.Uid }
func (c *Conn) GID() uint32 { return c.cred.Gid }

// SetDeadline bounds the handshake; the zero time bounds nothing.
func (c *Conn) SetDeadline(at time.Time) { _ = c.conn.SetDeadline(at) }

// TurnOut has ReceiveHello give up unless all has come: others want the place of a peer that is silent.
func (c *Conn) TurnOut() {
	c.turnedOut.Store(true)
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
}

// Wake has a Doorbell's Await return at once, now or when it is called next.
func (c *Conn) Wake() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) }

// Ring rings the peer. It never waits.
func (c *Conn) Ring() { _ = c.raw.Control(c.ring) }

// Shutdown has the peer hear of the end, and goroutines that wait here.
func (c *Conn) Shutdown() {
	_ = c.raw.Control(func(fd uintptr) { _ = system.Shutdown(int(fd), system.SHUT_RDWR) })
	if c.pidfd != nil {
		_ = c.pidfd.Close()
	}
}

// Close closes the socket after it has read it empty: the kernel would close what lies in it, at whatever time that takes.
func (c *Conn) Close() {
	c.Shutdown()
	_ = c.raw.Control(func(fd uintptr) {
		for range doorbellsMax {
			n, fds, _, err := c.in.receive(int(fd), c.in.bytes[:])
			for _, fd := range fds {
				region.CloseGiven(fd)
			}
			if err != nil || n == 0 {
				return
			}
		}
	})
	_ = c.conn.Close()
}

// AwaitDeath waits until the peer's process has ended; false: it can't be watched, or Shutdown was called.
func (c *Conn) AwaitDeath() bool {
	return c.pidfd != nil && AwaitEnd(c.pidfd)
}

// send sends bytes, with a descriptor at the first of them where fd is not negative. wait says whether to wait for room, as
// long as the deadline allows.
func (c *Conn) send(bytes []byte, fd int, wait bool) error {
	var oob []byte
	if fd >= 0 {
		oob = system.Rights(fd)
	}
	var inner error
	err := c.raw.Write(func(socket uintptr) bool {
		for len(bytes) > 0 {
			n, err := system.SendDescriptors(int(socket), bytes, oob, system.MSG_DONTWAIT|system.MSG_NOSIGNAL)
			switch {
			case errors.Is(err, system.EINTR):
			case errors.Is(err, system.EAGAIN) && wait:
				return false
			case err != nil:
				inner = err
				return true
			default:
				bytes, oob = bytes[n:], nil
			}
		}
		return true
	})
	return errors.Join(err, inner)
}

// SendHello sends a handshake message, with a region's descriptor unless fd is negative.
func (c *Conn) SendHello(hello *wire.Hello, fd int) error {
	bytes := hello.Encode()
	return c.send(bytes[:], fd, true)
}

// SendRegistration sends what follows a handshake message.
func (c *Conn) SendRegistration(bytes []byte) error { return c.send(bytes, -1, true) }

// Refuse sends a REFUSAL as far as the socket takes it at once.
func (c *Conn) Refuse(refusal *wire.Refusal) {
	hello := wire.Hello{Kind: wire.KindRefusal, VersionMin: wire.Version, VersionMax: wire.Version, Reason: refusal.Reason, Text: refusal.Text}
	bytes := hello.Encode()
	// The handshake's time may be over.
	_ = c.conn.SetWriteDeadline(time.Time{})
	_ = c.send(bytes[:], -1, false)
}

// SendDescriptor sends a descriptor with one byte. It never waits.
//
// Errors: EAGAIN where there is no room now, and others.
func (c *Conn) SendDescriptor(fd int) error { return c.send([]byte{0}, fd, false) }

// ReceiveHello receives a handshake message, and the descriptor that has come along, or -1.
//
// Errors: a *wire.Refusal where the peer sends none; what the kernel says.
func (c *Conn) ReceiveHello() (hello wire.Hello, fd int, err error) {
	var bytes [wire.HelloLen]byte
	have := 0
	fd = -1
	var inner error
	receive := func(socket uintptr) bool {
		for have < len(bytes) {
			n, fds, truncated, err := c.in.receive(int(socket), bytes[have:])
			for _, came := range fds {
				if fd >= 0 {
					region.CloseGiven(came)
					inner = &wire.Refusal{Reason: wire.ReasonMalformed, Text: "more than one descriptor came with the handshake message"}
					continue
				}
				fd = came
			}
			have += n
			switch {
			case inner != nil:
				return true
			case errors.Is(err, system.EAGAIN):
				return false
			case err != nil:
				inner = err
				return true
			case truncated:
				inner = &wire.Refusal{Reason: wire.ReasonBusy, Text: "a descriptor that came could not be taken: this process has too many open"}
				return true
			case n == 0:
				inner = fmt.Errorf("the peer hung up after %d bytes of the handshake: %w", have, io.ErrUnexpectedEOF)
				return true
			case wire.IsHTTP2(bytes[:have]):
				inner = &wire.Refusal{Reason: wire.ReasonMalformed, Text: "this is a socket of Tollfree's, and the peer speaks HTTP/2"}
				return true
			case !wire.MagicFits(bytes[:have]):
				inner = &wire.Refusal{Reason: wire.ReasonMalformed, Text: "the peer does not speak Tollfree's protocol"}
				return true
			}
		}
		return true
	}
	if err = c.raw.Read(receive); errors.Is(err, os.ErrDeadlineExceeded) {
		// What has come in time counts, also where nobody had looked yet.
		over := false
		if lookErr := c.raw.Control(func(socket uintptr) { over = receive(socket) }); lookErr == nil && over {
			err = nil
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		reason := uint32(wire.ReasonMalformed)
		if c.turnedOut.Load() {
			reason = wire.ReasonBusy
		}
		err = &wire.Refusal{Reason: reason, Text: fmt.Sprintf("the handshake took too long: %d of %d bytes have come", have, len(bytes))}
	}
	if err == nil {
		err = inner
	}
	if err != nil {
		if fd >= 0 {
			region.CloseGiven(fd)
		}
		return hello, -1, err
	}
	return wire.DecodeHello(&bytes), fd, nil
}

// ErrTooMany is the violation of a peer that sends more than doorbells.
var ErrTooMany = errors.New("more came on the socket in one go than a correct peer sends")

// Drain reads the socket empty, for one goroutine at a time, and gives the descriptors that came to take; -1 stands for a descriptor that this
// process had no number for. It never waits.
//
// Errors: io.EOF at the end, ErrTooMany, and what the kernel says.
func (c *Conn) Drain(take func(fd int)) (rung bool, err error) {
	controlErr := c.raw.Control(func(fd uintptr) { rung, err = c.drain(int(fd), take) })
	return rung, errors.Join(err, controlErr)
}

func (c *Conn) drain(socket int, take func(fd int)) (rung bool, err error) {
	for total := 0; ; {
		n, fds, truncated, err := c.in.receive(socket, c.in.bytes[:])
		if len(fds) > 4 {
			for _, fd := range fds {
				region.CloseGiven(fd)
			}
			return true, ErrTooMany
		}
		for _, fd := range fds {
			take(fd)
		}
		if truncated {
			take(-1)
		}
		switch {
		case errors.Is(err, system.EAGAIN):
			return total > 0, nil
		case err != nil:
			return total > 0, err
		case n == 0:
			return total > 0, io.EOF
		}
		if total += n; total > doorbellsMax {
			return true, ErrTooMany
		}
	}
}
