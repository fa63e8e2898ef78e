package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/device"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// selfSigned are files of a certificate that vouches for itself.
func selfSigned(t *testing.T) *Certificates {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		if err := os.WriteFile(directory+"/"+name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return directory + "/" + name
	}
	file := write("certificate", "CERTIFICATE", certificate)
	return &Certificates{Authorities: file, Certificate: file, Key: write("key", "PRIVATE KEY", private)}
}

// falseGateway does with one connection what a test says, after it has read the client's VIA.
func falseGateway(t *testing.T, c *Certificates, protocol string, answer func(conn *tls.Conn)) (address string) {
	t.Helper()
	own, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		plain, err := l.Accept()
		if err != nil {
			return
		}
		conn := tls.Server(plain, &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{protocol}, ClientAuth: tls.RequireAnyClientCert})
		defer conn.Close()
		hello := make([]byte, wire.HelloLen+len("group:a"))
		if _, err := io.ReadFull(conn, hello); err == nil {
			answer(conn)
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return StreamScheme + "localhost:" + port
}

func welcomeOf(change func(hello *wire.Hello)) []byte {
	config := Config{}.filled()
	hello := config.hello(wire.KindWelcome)
	if change != nil {
		change(&hello)
	}
	bytes := hello.Encode()
	return bytes[:]
}

// A gateway whose handshake is none gets no session.
func TestFalseHandshakesOfTheByteStream(t *testing.T) {
	c := selfSigned(t)
	for name, test := range map[string]struct {
		answer []byte
		words  string
	}{
		"nothing":                        {nil, "EOF"},
		"half of it":                     {welcomeOf(nil)[:100], "unexpected EOF"},
		"no handshake":                   {make([]byte, wire.HelloLen), "no handshake"},
		"a kind that is none":            {welcomeOf(func(h *wire.Hello) { h.Kind = wire.KindVia }), "kind"},
		"a refusal":                      {welcomeOf(func(h *wire.Hello) { h.Kind, h.Reason, h.Text = wire.KindRefusal, wire.ReasonBusy, "too many" }), "too many"},
		"a version":                      {welcomeOf(func(h *wire.Hello) { h.VersionMin, h.VersionMax = 7, 9 }), "versions 7 to 9"},
		"no calls":                       {welcomeOf(func(h *wire.Hello) { h.StreamCount = 0 }), "takes no calls"},
		"a ring that is too long":        {welcomeOf(func(h *wire.Hello) { h.RingLen, h.RegionLen = 1<<20, 1<<21 }), "ring"},
		"a ring that is no power of two": {welcomeOf(func(h *wire.Hello) { h.RingLen = 5000 }), "power of two"},
	} {
		address := falseGateway(t, c, device.Protocol, func(conn *tls.Conn) { _, _ = conn.Write(test.answer) })
		_, err := DialStream(context.Background(), address, "group:a", c, Config{})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One that agrees on no protocol is not spoken to; it waits for a handshake in vain.
	address := falseGateway(t, c, "another", func(conn *tls.Conn) { t.Error("it is spoken to") })
	if _, err := DialStream(context.Background(), address, "group:a", c, Config{}); status.Code(err) != codes.Unavailable {
		t.Errorf("another protocol: %v", err)
	}
	// One that says nothing is given up.
	address = falseGateway(t, c, device.Protocol, func(conn *tls.Conn) { _, _ = conn.Read(make([]byte, 1)) })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := DialStream(ctx, address, "group:a", c, Config{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("silence: %v", err)
	}
}

// A gateway that sends what none sends ends its session, and the calls of it; so does one that is cut off.
func TestFalseMessagesOfTheByteStream(t *testing.T) {
	c := selfSigned(t)
	message := func(kind byte, count uint16, consumed, at uint64, lines int) []byte {
		b := []byte{kind, 0, byte(count), byte(count >> 8), 0, 0, 0, 0}
		for _, word := range []uint64{consumed, at} {
			for range 8 {
				b, word = append(b, byte(word)), word>>8
			}
		}
		return append(b, make([]byte, 64*lines)...)
	}
	for name, test := range map[string]struct {
		bytes []byte
		words string
	}{
		"a kind that is none":      {message(9, 0, 0, 0, 0), "broke the protocol (socket)"},
		"a completion of nothing":  {message(2, 0, 1000, 0, 0), "broke the protocol (socket)"},
		"lines out of their turn":  {message(1, 1, 0, 7, 1), "broke the protocol (socket)"},
		"lines that are no record": {append(message(1, 1, 0, 0, 0), append([]byte{1, 2, 3, 4, 5, 6, 7, 8}, make([]byte, 56)...)...), "broke the protocol (ring)"},
		"the end":                  {nil, "hung up"},
		"the end within a message": {message(1, 4, 0, 0, 1), "hung up"},
	} {
		address := falseGateway(t, c, device.Protocol, func(conn *tls.Conn) {
			_, _ = conn.Write(welcomeOf(nil))
			_, _ = conn.Write(test.bytes)
			if test.words != "hung up" {
				_, _ = io.Copy(io.Discard, conn)
			}
		})
		client, err := DialStream(context.Background(), address, "group:a", c, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if started, err := client.Start(context.Background(), &call.Start{Method: "/a.B/C", Last: true}); err == nil {
			if outcome := started.Outcome(); outcome.Status.Code() != codes.Unavailable {
				t.Errorf("%s: the call ends with %v", name, outcome.Status)
			}
		}
		select {
		case <-client.Done():
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the session goes on", name)
		}
		if !strings.Contains(client.Err().Error(), test.words) {
			t.Errorf("%s: %v", name, client.Err())
		}
		_ = client.Close()
	}
}
