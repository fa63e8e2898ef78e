package rendezvous

import (
	"errors"
	"os"
	"time"
)

// A Doorbell waits for the peer to ring, again and again without an allocation. It is one goroutine's.
type Doorbell struct {
	conn *Conn
	// read is what the poller calls, drain what is called under the caller's lock.
	read  func(fd uintptr) bool
	drain func()
	// fd, rung and err are those of the call of read that is under way.
	fd   uintptr
	rung bool
	err  error
}

// NewDoorbell has take called for each descriptor that comes with a doorbell, under the lock that around takes.
func NewDoorbell(c *Conn, take func(fd int), around func(drain func())) *Doorbell {
	d := &Doorbell{conn: c}
	d.drain = func() { d.rung, d.err = c.drain(int(d.fd), take) }
	d.read = func(fd uintptr) bool {
		d.fd = fd
		around(d.drain)
		return d.rung || d.err != nil
	}
	return d
}

// Await waits until the socket has something, and drains it as Drain does. It returns without an error, too, when Wake was
// called.
//
// Errors: as Drain's.
func (d *Doorbell) Await() error {
	d.err = nil
	waitErr := d.conn.raw.Read(d.read)
	if errors.Is(waitErr, os.ErrDeadlineExceeded) {
		_ = d.conn.conn.SetReadDeadline(time.Time{})
		return d.err
	}
	return errors.Join(d.err, waitErr)
}
