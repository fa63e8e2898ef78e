package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/system"
)

const (
	// retryMin and retryMax are the pauses before the coordinator is looked for again.
	retryMin, retryMax = 10 * time.Millisecond, 200 * time.Millisecond
	// greetTime is how long a coordinator has to answer, leaveTime how long one has to hear that this member leaves, fetchGrace
	// how long those who wait for an extent wait for another connection.
	greetTime  = time.Second
	leaveTime  = time.Second
	fetchGrace = time.Second
	// descriptorsMax is how many descriptors a message has at most.
	descriptorsMax = 2
)

// A letter is a message to the coordinator. The descriptor, unless it is negative, is closed when it has been sent.
type letter struct {
	message Message
	fd      int
}

// An agent speaks with the coordinator. The pool's lock guards its fields.
type agent struct {
	pool    *Pool
	address rendezvous.Address
	// back is what this member says when it comes back.
	back Message
	// outbox are letters that the connection's writer has not taken; nobody is there to read any while attached is false.
	outbox   []letter
	post     chan struct{}
	attached bool
	conn     *net.UnixConn
	arriving map[extentKey]*arrival
	lastRow  uint64
	// lives tell of the ends of members that read this one's extents, or whose extents this one reads.
	lives map[uint32]*os.File
	// leaving is done when this member leaves; ended is closed when nothing of the membership is left.
	leaving context.Context
	depart  context.CancelFunc
	ended   chan struct{}
}

// An arrival is an extent whose owner does not look at this member's row yet.
type arrival struct {
	imported *imported
	row      uint64
}

func newAgent(p *Pool, address rendezvous.Address, welcome Message) *agent {
	back := newMessage(kindJoin).about(welcome.Member, 0)
	back.Pool, back.Secret = welcome.Pool, welcome.Secret
	a := &agent{
		pool: p, address: address, back: back, post: make(chan struct{}, 1), attached: true, arriving: map[extentKey]*arrival{},
		lives: map[uint32]*os.File{}, ended: make(chan struct{}),
	}
	a.leaving, a.depart = context.WithCancel(context.Background())
	return a
}

// say leaves a letter; false: no coordinator is there, and the next one is told all that it needs to know.
func (a *agent) say(message Message) bool { return a.send(message, -1) }

func (a *agent) send(message Message, fd int) bool {
	if !a.attached {
		if fd >= 0 {
			system.Close(fd)
		}
		return false
	}
	a.outbox = append(a.outbox, letter{message, fd})
	select {
	case a.post <- struct{}{}:
	default:
	}
	return true
}

// leave says that this member leaves, and ends the agent. The pool's lock is held, and nothing is held of the pool.
func (a *agent) leave() {
	a.say(newMessage(kindLeave))
	if a.conn != nil {
		_ = a.conn.SetReadDeadline(time.Now().Add(leaveTime))
	}
	a.depart()
}

// run speaks with one coordinator after the other until this member leaves.
func (a *agent) run(conn *net.UnixConn) {
	defer close(a.ended)
	for {
		a.attach(conn)
		a.converse(conn)
		if a.leaving.Err() != nil {
			break
		}
		a.lose()
		if conn = a.comeBack(); conn == nil {
			break
		}
		a.resume()
	}
	a.clean()
}

func (a *agent) attach(conn *net.UnixConn) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	a.conn = conn
	if a.leaving.Err() != nil {
		_ = conn.SetReadDeadline(time.Now().Add(leaveTime))
	}
}

// converse hears what the coordinator says, and sends what there is to say, until the connection is over.
func (a *agent) converse(conn *net.UnixConn) {
	over, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		a.write(conn, over)
	}()
	var in inbox
	for {
		message, fds, err := in.receive(conn)
		if err != nil {
			in.drop()
			break
		}
		a.hear(&message, fds)
	}
	close(over)
	_ = conn.Close()
	<-written
}

// write sends letters until the connection is over.
func (a *agent) write(conn *net.UnixConn, over <-chan struct{}) {
	for {
		a.pool.mu.Lock()
		letters := a.outbox
		a.outbox = nil
		a.pool.mu.Unlock()
		for i, l := range letters {
			err := l.send(conn)
			if err != nil {
				for _, l := range letters[i+1:] {
					l.drop()
				}
				// The reader hears of it, too.
				_ = conn.Close()
				return
			}
		}
		if len(letters) > 0 {
			continue
		}
		select {
		case <-a.post:
		case <-over:
			return
		}
	}
}

func (l *letter) send(conn *net.UnixConn) error {
	defer l.drop()
	var oob []byte
	if l.fd >= 0 {
		oob = system.Rights(l.fd)
	}
	bytes := l.message.encode()
	n, _, err := conn.WriteMsgUnix(bytes, oob, nil)
	if err == nil && n < len(bytes) {
		_, err = conn.Write(bytes[n:])
	}
	return err
}

func (l *letter) drop() {
	if l.fd >= 0 {
		system.Close(l.fd)
		l.fd = -1
	}
}

// lose takes note that the coordinator is gone. Nothing that this member has or reads is touched.
func (a *agent) lose() {
	p := a.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	a.attached, a.conn = false, nil
	for i := range a.outbox {
		a.outbox[i].drop()
	}
	a.outbox = nil
	for _, arrival := range a.arriving {
		arrival.imported.close()
	}
	clear(a.arriving)
	p.asking = false
	p.hasGrown()
}

// comeBack looks for the coordinator until it is there; nil: this member leaves.
func (a *agent) comeBack() *net.UnixConn {
	lost := time.Now()
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-a.leaving.Done():
			timer.Stop()
			return nil
		}
		ctx, cancel := context.WithTimeout(a.leaving, greetTime)
		conn, _, err := greet(ctx, a.address, &a.back)
		cancel()
		if err == nil {
			return conn
		}
		if time.Since(lost) > fetchGrace {
			a.giveUpFetches()
		}
	}
}

func (a *agent) giveUpFetches() {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	for key := range a.pool.fetches {
		a.pool.finish(key, Gone)
	}
}

// resume tells a coordinator that knows this member again of all that it has and maps, and asks again for what was on its way.
func (a *agent) resume() {
	p := a.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	a.attached = true
	p.denied = time.Time{}
	for _, extents := range [][]*ownExtent{p.own, p.making} {
		for _, extent := range extents {
			a.announce(extent)
		}
	}
	present := func(m *imported) {
		message := newMessage(kindPresent).about(m.key.member, m.key.extent)
		message.Amount = uint64(m.shape.DataLen())
		a.say(message)
	}
	for _, m := range p.imports {
		present(m)
	}
	for m := range p.parted {
		present(m)
	}
	a.say(newMessage(kindResumed))
	for key := range p.fetches {
		a.say(newMessage(kindMap).about(key.member, key.extent))
	}
	if a.leaving.Err() != nil {
		a.say(newMessage(kindLeave))
	}
}

func (a *agent) announce(extent *ownExtent) {
	message := newMessage(kindExtent).about(0, extent.index)
	message.Amount = uint64(extent.shape.DataLen())
	a.say(message)
}

// clean gives everything back: nothing of the pool is in use any more.
func (a *agent) clean() {
	p := a.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	a.attached = false
	for i := range a.outbox {
		a.outbox[i].drop()
	}
	for key := range p.fetches {
		p.finish(key, Gone)
	}
	for _, arrival := range a.arriving {
		arrival.imported.close()
	}
	for _, m := range p.imports {
		m.close()
	}
	for m := range p.parted {
		m.close()
	}
	for _, extents := range [][]*ownExtent{p.own, p.making} {
		for _, extent := range extents {
			extent.close()
		}
	}
	for _, life := range a.lives {
		_ = life.Close()
	}
	a.outbox, a.arriving, a.lives, p.imports, p.parted, p.own, p.making, p.waiting = nil, nil, nil, nil, nil, nil, nil, nil
}

// inbox puts messages together.
type inbox struct {
	bytes [MessageLen]byte
	len   int
	fds   []int
	oob   [256]byte
}

// receive waits for the next message. Its descriptors are the caller's.
func (in *inbox) receive(conn *net.UnixConn) (message Message, fds []int, err error) {
	for in.len < MessageLen {
		n, oobn, flags, _, err := conn.ReadMsgUnix(in.bytes[in.len:], in.oob[:])
		if err != nil {
			return message, nil, err
		}
		if came, err := system.ParseRights(in.oob[:oobn]); err == nil {
			in.fds = append(in.fds, came...)
		}
		switch {
		case n == 0:
			return message, nil, io.EOF
		case len(in.fds) > descriptorsMax:
			return message, nil, errors.New("more descriptors came than a message has")
		case flags&system.MSG_CTRUNC != 0 && len(in.fds) == descriptorsMax:
			return message, nil, errors.New("descriptors came that there was no room for")
		}
		in.len += n
	}
	in.len = 0
	fds, in.fds = in.fds, nil
	message = DecodeMessage(&in.bytes)
	if string(message.Magic[:]) != messageMagic {
		closeAll(fds)
		return message, nil, errors.New("what came is no message of a pool's")
	}
	return message, fds, nil
}

func (in *inbox) drop() {
	closeAll(in.fds)
	in.fds = nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		region.CloseGiven(fd)
	}
}

func parseAddress(text string) (rendezvous.Address, error) { return rendezvous.ParseAddress(text) }

// greet connects to a coordinator and says its first message, by which this process joins or comes back.
func greet(ctx context.Context, address rendezvous.Address, join *Message) (conn *net.UnixConn, welcome Message, err error) {
	conn, err = address.Dial(ctx)
	if err != nil {
		return nil, welcome, fmt.Errorf("the pool at %s: %w", address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	welcome, err = converseFirst(conn, join)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, welcome, fmt.Errorf("the pool at %s: %w", address, err)
	}
	return conn, welcome, nil
}

func converseFirst(conn *net.UnixConn, join *Message) (welcome Message, err error) {
	uid, err := rendezvous.UserOf(conn)
	if err != nil {
		return welcome, err
	}
	if !rendezvous.SameUser(uid) {
		return welcome, fmt.Errorf("its coordinator is a process of user %d, and members are of its user", uid)
	}
	first := letter{*join, -1}
	sendErr := first.send(conn)
	var in inbox
	// A coordinator may have refused before it heard anything.
	welcome, fds, err := in.receive(conn)
	closeAll(fds)
	in.drop()
	switch {
	case err != nil:
		return welcome, errors.Join(sendErr, err)
	case welcome.Version != Version:
		return welcome, fmt.Errorf("its coordinator speaks version %d, and this process %d", welcome.Version, Version)
	case welcome.Kind == kindRefusal:
		return welcome, fmt.Errorf("its coordinator refuses this process: %s", wordsOf(welcome.Reason))
	case welcome.Kind != kindWelcome || !soundWelcome(&welcome, join):
		return welcome, errors.New("what listens there is no coordinator")
	}
	return welcome, nil
}

// soundWelcome says whether a welcome can be one, and is for the member that came back, if one did.
func soundWelcome(w, join *Message) bool {
	_, ok := ShapeOf(w.Len)
	if !ok || w.Amount < w.Len || w.Pool == [idLen]byte{} || w.Member == 0 || w.Member != MemberOf(w.Secret, w.Pool) {
		return false
	}
	return join.Member == 0 || w.Pool == join.Pool && w.Member == join.Member && w.Secret == join.Secret
}
