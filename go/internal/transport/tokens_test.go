package transport

import (
	"net/netip"
	"testing"
	"time"

	"github.com/tollfree/tollfree/go/internal/wire"
)

func ends(client, server string) Ends {
	return Ends{netip.MustParseAddrPort(client), netip.MustParseAddrPort(server)}
}

// presented is a HELLO with a token, and the ends of a connection unless they are the zero value.
func presented(token Token, ends Ends) *wire.Hello {
	hello := &wire.Hello{Features: wire.FeatureUpgrade, Token: token}
	if ends != (Ends{}) {
		ends.put(hello)
	}
	return hello
}

func TestATokenIsPresentedOnceAndItsAnswerConfirmedOnce(t *testing.T) {
	var tokens Tokens
	connection := ends("127.0.0.1:5000", "127.0.0.1:443")
	token, err := tokens.Give(connection)
	if err != nil {
		t.Fatal(err)
	}
	answer, refusal := tokens.present(presented(token, connection))
	if refusal != nil {
		t.Fatal(refusal)
	}
	if _, refusal := tokens.present(presented(token, connection)); refusal == nil || refusal.Reason != wire.ReasonToken {
		t.Errorf("a second time: %v", refusal)
	}
	if _, ok := tokens.Confirm(token); ok {
		t.Error("a token is taken for its answer")
	}
	if got, ok := tokens.Confirm(answer); !ok || got != token {
		t.Errorf("%v, %v", got, ok)
	}
	if _, ok := tokens.Confirm(answer); ok {
		t.Error("an answer is confirmed twice")
	}
}

func TestATokenIsForItsConnection(t *testing.T) {
	var tokens Tokens
	connection := ends("127.0.0.1:5000", "127.0.0.1:443")
	for name, c := range map[string]struct {
		ends Ends
		ok   bool
	}{
		"the same":             {connection, true},
		"the same in IPv6":     {ends("[::ffff:127.0.0.1]:5000", "[::ffff:127.0.0.1]:443"), true},
		"a client that passes": {Ends{}, true},
		"another client":       {ends("127.0.0.1:5001", "127.0.0.1:443"), false},
		"another server":       {ends("127.0.0.1:5000", "127.0.0.2:443"), false},
	} {
		token, err := tokens.Give(connection)
		if err != nil {
			t.Fatal(err)
		}
		_, refusal := tokens.present(presented(token, c.ends))
		if c.ok != (refusal == nil) || refusal != nil && refusal.Reason != wire.ReasonEnds {
			t.Errorf("%s: %v", name, refusal)
		}
	}
}

func TestTokensAreFewAndShortLived(t *testing.T) {
	var tokens Tokens
	connection := ends("127.0.0.1:5000", "127.0.0.1:443")
	var token Token
	for range connectionTokensMax {
		var err error
		if token, err = tokens.Give(connection); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tokens.Give(connection); err == nil {
		t.Error("one connection gets any number")
	}
	for token, given := range tokens.given {
		given.until = time.Now().Add(-time.Second)
		tokens.given[token] = given
	}
	if _, refusal := tokens.present(presented(token, connection)); refusal == nil {
		t.Error("an old token is good")
	}
	for i := range tokensMax {
		if _, err := tokens.Give(ends(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(1000+i)).String(), "127.0.0.1:443")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tokens.Give(connection); err == nil {
		t.Error("any number is kept")
	}
	if _, err := ParseToken("12"); err == nil {
		t.Error("a short token is taken")
	}
}
