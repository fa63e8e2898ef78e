package pool

import (
	"crypto/rand"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A coordinator coordinates a pool for tests: it grants all that is asked for, or nothing.
type coordinator struct {
	t        *testing.T
	path     string
	listener *net.UnixListener
	// pool and secrets outlive a coordinator.
	pool    [idLen]byte
	secrets map[uint32][idLen]byte

	mu      sync.Mutex
	members map[uint32]*net.UnixConn
	denies  bool
	heard   []uint32
	desks   sync.WaitGroup
	// rows are the descriptors that MAPPED is sent with in place of extents, where a test says so.
	instead func() (fd int, amount uint64)
}

func newCoordinator(t *testing.T) *coordinator {
	c := &coordinator{t: t, path: filepath.Join(t.TempDir(), "pool"), secrets: map[uint32][idLen]byte{}}
	_, _ = rand.Read(c.pool[:])
	c.start()
	t.Cleanup(c.stop)
	return c
}

func (c *coordinator) address() string { return "shm://" + c.path }

func (c *coordinator) start() {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.listener = listener
	c.members = map[uint32]*net.UnixConn{}
	c.desks.Go(func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			c.desks.Go(func() { c.desk(conn) })
		}
	})
}

// stop ends the coordinator; start begins another one at the same place.
func (c *coordinator) stop() {
	_ = c.listener.Close()
	c.mu.Lock()
	for _, conn := range c.members {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.desks.Wait()
}

// said is how many messages of a kind have come.
func (c *coordinator) said(kind uint32) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, heard := range c.heard {
		if heard == kind {
			n++
		}
	}
	return n
}

func (c *coordinator) deny(denies bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denies = denies
}

func (c *coordinator) desk(conn *net.UnixConn) {
	defer conn.Close()
	var in inbox
	join, _, err := in.receive(conn)
	if err != nil || join.Kind != kindJoin {
		return
	}
	secret := join.Secret
	if join.Member == 0 {
		_, _ = rand.Read(secret[:])
	}
	member := MemberOf(secret, c.pool)
	welcome := newMessage(kindWelcome).about(member, 0)
	welcome.Pool, welcome.Secret, welcome.Amount, welcome.Len = c.pool, secret, 1<<30, 1<<20
	c.mu.Lock()
	c.members[member] = conn
	c.mu.Unlock()
	c.say(member, welcome)
	for {
		message, fds, err := in.receive(conn)
		if err != nil {
			return
		}
		c.hear(member, message, fds)
		closeAll(fds)
		if message.Kind == kindLeave {
			return
		}
	}
}

// say sends a message to a member, with copies of descriptors.
func (c *coordinator) say(to uint32, message Message, fds ...int) {
	c.mu.Lock()
	conn := c.members[to]
	c.mu.Unlock()
	if conn == nil {
		return
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, _ = conn.WriteMsgUnix(message.encode(), oob, nil)
}

// life is a pidfd of this process, in which all members are.
func (c *coordinator) life() int {
	fd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		c.t.Error(err)
	}
	return fd
}

func (c *coordinator) hear(from uint32, m Message, fds []int) {
	c.mu.Lock()
	c.heard = append(c.heard, m.Kind)
	denies, instead := c.denies, c.instead
	c.mu.Unlock()
	switch m.Kind {
	case kindNeed:
		answer := newMessage(kindGrant)
		if denies {
			answer = newMessage(kindDeny)
			answer.Reason = 3
		}
		answer.Amount = m.Amount
		c.say(from, answer)
	case kindExtent:
		c.say(from, newMessage(kindExtentOK).about(0, m.Extent))
	case kindMap:
		c.say(m.Member, newMessage(kindWanted).about(from, m.Extent))
	case kindGive:
		life := c.life()
		defer unix.Close(life)
		answer := newMessage(kindMapped).about(from, m.Extent)
		var stat unix.Stat_t
		_ = unix.Fstat(fds[0], &stat)
		for pages := uint64(extentPageCountMin); ; pages++ {
			if shape, _ := ShapeOf(pages * pageLen); int64(shape.FileLen()) == stat.Size {
				answer.Amount = pages * pageLen
				break
			}
		}
		fd := fds[0]
		if instead != nil {
			fd, answer.Amount = instead()
			defer unix.Close(fd)
		}
		c.say(m.Member, answer, fd, life)
	case kindRow:
		life := c.life()
		defer unix.Close(life)
		c.say(m.Member, Message(m).about(from, m.Extent), fds[0], life)
	case kindRowOK:
		answer := newMessage(kindWatched).about(from, m.Extent)
		answer.Len = m.Len
		c.say(m.Member, answer)
	case kindNotHad:
		answer := newMessage(kindMapFailed).about(from, m.Extent)
		answer.Reason = m.Reason
		c.say(m.Member, answer)
	case kindReturned:
		c.tellOthers(from, newMessage(kindDrop).about(from, m.Extent))
	case kindLeave:
		c.tellOthers(from, newMessage(kindLeft).about(from, 0))
	}
}

func (c *coordinator) tellOthers(but uint32, message Message) {
	c.mu.Lock()
	var others []uint32
	for member := range c.members {
		if member != but {
			others = append(others, member)
		}
	}
	c.mu.Unlock()
	for _, member := range others {
		c.say(member, message)
	}
}
