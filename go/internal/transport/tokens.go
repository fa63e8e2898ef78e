package transport

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/tollfree/tollfree/go/internal/wire"
)

const (
	// tokenTime is how long a token, and an answer to one, is good: spec/wire.md, section 23.
	tokenTime = 10 * time.Second
	// tokensMax bounds the tokens that are kept, connectionTokensMax those of one connection.
	tokensMax           = 1024
	connectionTokensMax = 4
)

// A Token is what a client presents that was offered a session over TCP, or the answer to it.
type Token [wire.TokenLen]byte

func (t Token) String() string { return hex.EncodeToString(t[:]) }

// ParseToken takes a token out of a header.
func ParseToken(text string) (t Token, err error) {
	bytes, err := hex.DecodeString(text)
	if err != nil || len(bytes) != len(t) {
		return t, errors.New("a token that is not 32 hexadecimal digits")
	}
	return Token(bytes), nil
}

// Ends are the addresses of a TCP connection, as a kernel says them.
type Ends struct{ Client, Server netip.AddrPort }

// plain makes addresses of IPv4 that are mapped into IPv6 comparable with others.
func (e Ends) plain() Ends {
	plain := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	}
	return Ends{plain(e.Client), plain(e.Server)}
}

// put and endsOf write and read a handshake message's four fields.
func (e Ends) put(hello *wire.Hello) {
	hello.TCPClient, hello.TCPServer = e.Client.Addr().As16(), e.Server.Addr().As16()
	hello.TCPClientPort, hello.TCPServerPort = e.Client.Port(), e.Server.Port()
}

func endsOf(hello *wire.Hello) Ends {
	return Ends{
		netip.AddrPortFrom(netip.AddrFrom16(hello.TCPClient), hello.TCPClientPort),
		netip.AddrPortFrom(netip.AddrFrom16(hello.TCPServer), hello.TCPServerPort),
	}.plain()
}

// Tokens are those that a server has given out over TCP, and its answers to those that were presented.
type Tokens struct {
	mu       sync.Mutex
	given    map[Token]given
	answered map[Token]answered
}

type given struct {
	ends  Ends
	until time.Time
}

type answered struct {
	token Token
	until time.Time
}

// Give makes a token for a client at the other end of a connection.
//
// Errors: too many are kept.
func (t *Tokens) Give(ends Ends) (Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	ends = ends.plain()
	own := 0
	for _, other := range t.given {
		if other.ends == ends {
			own++
		}
	}
	if len(t.given) >= tokensMax || own >= connectionTokensMax {
		return Token{}, errors.New("too many tokens wait to be presented; try later")
	}
	if t.given == nil {
		t.given = map[Token]given{}
	}
	token := newToken()
	t.given[token] = given{ends, time.Now().Add(tokenTime)}
	return token, nil
}

func newToken() (t Token) {
	// It never fails.
	_, _ = rand.Read(t[:])
	return t
}

// forget drops what is too old.
func (t *Tokens) forget() {
	now := time.Now()
	for token, given := range t.given {
		if now.After(given.until) {
			delete(t.given, token)
		}
	}
	for answer, answered := range t.answered {
		if now.After(answered.until) {
			delete(t.answered, answer)
		}
	}
}

// present takes the token of a HELLO, once, and gives the answer to it.
func (t *Tokens) present(hello *wire.Hello) (answer Token, refusal *wire.Refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	given, known := t.given[hello.Token]
	if !known {
		return answer, &wire.Refusal{Reason: wire.ReasonToken, Text: "the token is none that was given out here, or not any more"}
	}
	delete(t.given, hello.Token)
	untold := hello.TCPClient == [16]byte{} && hello.TCPServer == [16]byte{} && hello.TCPClientPort == 0 && hello.TCPServerPort == 0
	if !untold && endsOf(hello) != given.ends {
		return answer, &wire.Refusal{Reason: wire.ReasonEnds, Text: "the token was given out over another connection"}
	}
	if t.answered == nil {
		t.answered = map[Token]answered{}
	}
	answer = newToken()
	t.answered[answer] = answered{hello.Token, time.Now().Add(tokenTime)}
	return answer, nil
}

// Confirm gives the token that was answered so, once.
func (t *Tokens) Confirm(answer Token) (token Token, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	found, ok := t.answered[answer]
	delete(t.answered, answer)
	return found.token, ok
}
