package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/steps"
	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// handshakeTime bounds the whole handshake.
const handshakeTime = 5 * time.Second

// clockNow is CLOCK_MONOTONIC, which the protocol's deadlines are told by; the runtime's counts from a start of its own.
func clockNow() uint64 {
	var now system.Timespec
	if err := system.ClockGettime(system.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return uint64(now.Nano())
}

// meeting is what a handshake has come to.
type meeting struct {
	conn     socket
	own      *region.Own
	peer     []byte
	said     wire.Hello
	received uint64
	// secret and remote are those of a peer of another host, which has another clock.
	secret     *tls.ConnectionState
	remote     net.Addr
	otherClock bool
}

// close gives all of it up.
func (m *meeting) close() {
	m.unmap()
	m.conn.Close()
}

func (m *meeting) unmap() {
	if m.own != nil {
		m.own.Unmap()
	}
	if m.peer != nil {
		region.Unmap(m.peer)
	}
}

// hello is what this side says.
func (c *Config) hello(kind uint32) wire.Hello {
	hello := wire.Hello{
		Kind: kind, VersionMin: wire.Version, VersionMax: wire.Version, Features: wire.FeatureLoad,
		RegionLen: wire.RingOff + wire.RingLenDefault, RingLen: wire.RingLenDefault,
		StreamWindow: wire.StreamWindowDefault, SessionWindow: c.sessionWindow(), ClockNS: clockNow(),
		AreaLenMax: wire.AreaLenMax, MetadataLenMax: wire.MetadataLenMax, Text: c.Agent,
	}
	if kind != wire.KindHello && kind != wire.KindVia {
		hello.StreamCount = c.StreamCount
	}
	if kind == wire.KindAttach {
		hello.Features |= wire.FeatureLending
	}
	if c.Pool != nil {
		hello.Features |= wire.FeaturePool
		hello.Pool = c.Pool.ID()
	}
	return hello
}

// poolWith is the pool that this side and its peer have in common, or nil.
func (c *Config) poolWith(said *wire.Hello) *pool.Pool {
	if c.Pool == nil || said.Features&wire.FeaturePool == 0 || said.Pool != c.Pool.ID() {
		return nil
	}
	return c.Pool
}

// sessionWindow makes sure that streams that nobody reads can't hold up the others.
func (c *Config) sessionWindow() uint64 {
	return wire.StreamWindowDefault*uint64(max(c.StreamCount, wire.StreamCountDefault)) + wire.WindowReserve
}

func (c *Config) limits() session.Limits {
	return session.Limits{
		StreamWindow: wire.StreamWindowDefault, SessionWindow: c.sessionWindow(), StreamCount: c.StreamCount,
		MetadataLenMax: wire.MetadataLenMax,
	}
}

func peerLimits(said *wire.Hello) session.Limits {
	return session.Limits{
		StreamWindow: said.StreamWindow, SessionWindow: said.SessionWindow, StreamCount: said.StreamCount,
		MetadataLenMax: int(min(said.MetadataLenMax, wire.MetadataLenMax)),
	}
}

func makeRegion() (*region.Own, error) {
	own, err := region.Create("tollfree", wire.RingOff+wire.RingLenDefault)
	if err == nil {
		ring.InitControlPage(own.Memory(), boundTo())
	}
	return own, err
}

// tryMemory says at the start what every session would fail for.
func tryMemory() error {
	own, err := makeRegion()
	if err != nil {
		return err
	}
	own.Unmap()
	return nil
}

// take makes the checks 9 to 16 of section 3, and maps the peer's region.
func (m *meeting) take(said *wire.Hello, fd int) error {
	if refusal := said.CheckSizes(fd >= 0); refusal != nil {
		if fd >= 0 {
			region.CloseGiven(fd)
		}
		return refusal
	}
	peer, err := region.Map(fd, int(said.RegionLen))
	switch {
	case errors.Is(err, region.ErrShort):
		return &wire.Refusal{Reason: wire.ReasonBusy, Text: err.Error()}
	case err != nil:
		return &wire.Refusal{Reason: wire.ReasonRegion, Text: err.Error()}
	}
	m.peer, m.said = peer, *said
	steps.Pass(steps.RegionMapped)
	return nil
}

// upgrade is what a client presents that was offered a session over TCP.
type upgrade struct {
	token Token
	ends  Ends
}

// A presentation is what the end that connects says beside its sizes.
type presentation struct {
	// kind is HELLO, ATTACH or VIA.
	kind uint32
	// registration follows ATTACH and VIA.
	registration []byte
	// upgrade is not nil of a client that was offered the session over TCP.
	upgrade *upgrade
}

// attach makes the handshake of the end that connects. conn is closed where it fails.
func attach(conn *rendezvous.Conn, config *Config, as *presentation) (met *meeting, err error) {
	m := &meeting{conn: conn}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if !config.Admits(conn.UID()) {
		return nil, &usersError{conn.UID(), conn.PID()}
	}
	if m.own, err = makeRegion(); err != nil {
		return nil, err
	}
	hello := config.hello(as.kind)
	hello.BodyLen = uint32(len(as.registration))
	if as.upgrade != nil {
		hello.Features |= wire.FeatureUpgrade
		hello.Required |= wire.FeatureUpgrade
		hello.Token = as.upgrade.token
		as.upgrade.ends.put(&hello)
	}
	steps.Pass(steps.Connected)
	sendErr := conn.SendHello(&hello, m.own.FD())
	if sendErr == nil && as.registration != nil {
		sendErr = conn.SendRegistration(as.registration)
	}
	m.own.Sent()
	steps.Pass(steps.HelloSent)
	// A server may refuse at first sight, and hang up.
	said, fd, err := conn.ReceiveHello()
	m.received = clockNow()
	steps.Pass(steps.WelcomeReceived)
	if err != nil {
		return nil, errors.Join(sendErr, err)
	}
	if err := checkAnswer(&said, as); err != nil {
		if fd >= 0 {
			region.CloseGiven(fd)
		}
		return nil, err
	}
	if err := m.take(&said, fd); err != nil {
		return nil, err
	}
	if sendErr != nil {
		return nil, sendErr
	}
	return m, nil
}

// checkAnswer says why what answers a handshake message is no WELCOME to it, but for sizes.
func checkAnswer(said *wire.Hello, as *presentation) error {
	if said.Kind == wire.KindRefusal {
		return fmt.Errorf("the server refuses: %w", &refusedError{*said})
	}
	if refusal := said.CheckFirst(wire.KindWelcome); refusal != nil {
		return refusal
	}
	if as.upgrade != nil && said.Features&wire.FeatureUpgrade == 0 {
		return &wire.Refusal{Reason: wire.ReasonToken, Text: "a server that does not answer the token"}
	}
	if (said.StreamCount == 0) != (as.kind == wire.KindAttach) {
		return &wire.Refusal{Reason: wire.ReasonMalformed, Text: "a server that takes no calls, or a gateway that takes some"}
	}
	return nil
}

// usersError is an end that is not let in, or not spoken to.
type usersError struct {
	uid uint32
	pid int32
}

func (e *usersError) Error() string {
	return fmt.Sprintf("process %d is of user %d, which is not allowed", e.pid, e.uid)
}

// welcome makes a server's handshake with a client whose user is allowed. busy says why it may not have one more session. conn is closed where it fails.
func welcome(conn *rendezvous.Conn, config *Config, tokens *Tokens, busy func() *wire.Refusal) (met *meeting, err error) {
	m := &meeting{conn: conn}
	defer func() {
		if err == nil {
			return
		}
		var refusal *wire.Refusal
		if errors.As(err, &refusal) {
			conn.Refuse(refusal)
		}
		m.close()
	}()
	said, fd, err := conn.ReceiveHello()
	m.received = clockNow()
	if err != nil {
		return nil, err
	}
	steps.Pass(steps.HelloReceived)
	refuse := func(refusal *wire.Refusal) (*meeting, error) {
		if fd >= 0 {
			region.CloseGiven(fd)
		}
		return nil, refusal
	}
	if refusal := said.CheckFirst(wire.KindHello); refusal != nil {
		return refuse(refusal)
	}
	if refusal := busy(); refusal != nil {
		return refuse(refusal)
	}
	upgrades := said.Features&wire.FeatureUpgrade != 0
	var answer Token
	if upgrades {
		var refusal *wire.Refusal
		if answer, refusal = tokens.present(&said); refusal != nil {
			return refuse(refusal)
		}
	}
	if m.own, err = makeRegion(); err != nil {
		return refuse(&wire.Refusal{Reason: wire.ReasonBusy, Text: err.Error()})
	}
	if err := m.take(&said, fd); err != nil {
		return nil, err
	}
	hello := config.hello(wire.KindWelcome)
	// The features in force are those of both.
	hello.Features &= said.Features
	if upgrades {
		hello.Features |= wire.FeatureUpgrade
		hello.Token = answer
	}
	if err := conn.SendHello(&hello, m.own.FD()); err != nil {
		return nil, err
	}
	m.own.Sent()
	steps.Pass(steps.WelcomeSent)
	return m, nil
}

// peerAt is who is at the other end of a session made at an address.
func (m *meeting) peerAt(address string) call.Peer {
	return call.Peer{
		Address: address, PID: m.conn.PID(), UID: m.conn.UID(), GID: m.conn.GID(), Agent: m.said.Text, Secret: m.secret, Remote: m.remote,
	}
}

// clockShift is what is added to the peer's times to make them this side's; spec/wire.md, section 14.
func (m *meeting) clockShift() int64 {
	const same = uint64(10 * time.Second)
	if !m.otherClock && m.received >= m.said.ClockNS && m.received-m.said.ClockNS <= same {
		return 0
	}
	return int64(m.received - m.said.ClockNS)
}

// localDeadline is a peer's time as this side's, and how long there is until then.
func localDeadline(deadlineNS uint64, shift int64) time.Duration {
	local := deadlineNS + uint64(shift)
	switch {
	case shift > 0 && local < deadlineNS:
		local = math.MaxUint64
	case shift < 0 && local > deadlineNS:
		local = 0
	}
	now := clockNow()
	if local <= now {
		return 0
	}
	return time.Duration(min(local-now, math.MaxInt64))
}
