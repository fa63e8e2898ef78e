//go:build interop

package tollfree

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
)

// A signer signs certificates in a directory of the test's.
type signer struct {
	t           *testing.T
	directory   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	a := &signer{t: t, directory: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.certificate, a.key = template, a.write("ca", template, nil, nil)
	return a
}

// sign makes a certificate of a name, and gives its files.
func (a *signer) sign(name string) (certificate, key string) {
	a.write(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.certificate, a.key)
	return a.file(name + ".pem"), a.file(name + ".key")
}

func (a *signer) file(name string) string { return a.directory + "/" + name }

func (a *signer) write(name string, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	wantNoError(a.t, err)
	if parent == nil {
		parent, signer = template, key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	wantNoError(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	wantNoError(a.t, err)
	for end, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: certificate}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		wantNoError(a.t, os.WriteFile(a.file(name+end), pem.EncodeToMemory(block), 0o600))
	}
	return key
}

// streamGateway is a gateway whose backends attach by the byte stream, with a certificate of localhost.
func (a *signer) streamGateway() (stream, socket string) {
	certificate, key := a.sign("localhost")
	stream = freePort(a.t)
	socket, _ = rustGateway(a.t, fmt.Sprintf("[backends.stream]\naddress = %q\ncertificate = %q\nkey = %q\nclient_ca = %q\n[groups.default]\nsubjects = [\"CN=backend\"]\ndirect_connections = true\n",
		stream, certificate, key, a.file("ca.pem")))
	_, port, _ := net.SplitHostPort(stream)
	return "device+tls://localhost:" + port, socket
}

// A streamed service says who has called.
type streamed struct {
	interopService
	t *testing.T
}

func (s *streamed) EmptyCall(ctx context.Context, in *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	from, _ := peer.FromContext(ctx)
	if info, ok := from.AuthInfo.(credentials.TLSInfo); !ok || info.State.PeerCertificates[0].DNSNames[0] != "localhost" || from.Addr.Network() != "tcp" {
		s.t.Errorf("the peer is %+v", from)
	}
	if caller, ok := CallerFromContext(ctx); !ok || !strings.HasPrefix(caller.Address, "device:127.0.0.1:") || caller.Subject != "CN=backend" {
		s.t.Errorf("the caller is %+v, %v", caller, ok)
	}
	return s.interopService.EmptyCall(ctx, in)
}

// A cutter cuts connections to a gateway.
type cutter struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newCutter(t *testing.T, to string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	wantNoError(t, err)
	p := &cutter{Listener: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			go func() { io.Copy(in, struct{ io.Reader }{out}); in.Close() }()
			go func() { io.Copy(out, struct{ io.Reader }{in}); out.Close() }()
		}
	}()
	t.Cleanup(func() { l.Close(); p.cut() })
	return p
}

func (p *cutter) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		conn.Close()
	}
	p.conns = nil
}

// A server and a client in Go, both by the byte stream, at a gateway as of another host; the connection is cut.
func TestGoByTheByteStream(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		a := newSigner(t)
		certificate, key := a.sign("backend")
		stream, _ := a.streamGateway()
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(stream, "device+tls://"))
		through := newCutter(t, "127.0.0.1:"+port)
		_, port, _ = net.SplitHostPort(through.Addr().String())
		cut := "device+tls://localhost:" + port

		server := NewServer(Certificates(a.file("ca.pem"), certificate, key))
		grpc_testing.RegisterTestServiceServer(server, &streamed{t: t})
		served := make(chan error, 1)
		go func() {
			err := server.Attach(cut, "default")
			if err != nil {
				t.Error(err)
			}
			served <- err
		}()
		t.Cleanup(func() {
			server.GracefulStop()
			wantNoError(t, <-served)
		})
		dial := func(address string) *ClientConn {
			conn, err := NewClient(address, WithVia("group:default"), WithCertificates(a.file("ca.pem"), certificate, key), WithDefaultCallOptions(grpc.WaitForReady(true)))
			wantNoError(t, err)
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		conn := dial(stream)
		client := untilAnswered(t, conn)
		if err := conn.Direct(); err == nil {
			t.Error("a direct connection to another host")
		}
		t.Run("cases", func(t *testing.T) {
			for name, run := range map[string]func(*testing.T, grpc_testing.TestServiceClient){
				"unary": throughGateway, "client streaming": interopClientStreaming, "server streaming": interopServerStreaming, "ping pong": interopPingPong,
				"cancellation": interopCancellation, "deadline": interopDeadline, "metadata": interopMetadata, "statuses": interopStatuses,
				"large at once": interopLargeAtOnce,
			} {
				t.Run(name, func(t *testing.T) { run(t, client) })
			}
		})
		t.Run("cut", func(t *testing.T) {
			for range 3 {
				bidi, err := client.FullDuplexCall(testContext(t))
				wantNoError(t, err)
				wantNoError(t, bidi.Send(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: outputs(100_000)}))
				_, err = bidi.Recv()
				wantNoError(t, err)
				through.cut()
				_, err = bidi.Recv()
				wantCode(t, err, codes.Unavailable)
				untilAnswered(t, conn)
			}
			// A client's own connection is cut.
			other := dial(cut)
			client := untilAnswered(t, other)
			bidi, err := client.FullDuplexCall(testContext(t))
			wantNoError(t, err)
			wantNoError(t, bidi.Send(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: outputs(1)}))
			_, err = bidi.Recv()
			wantNoError(t, err)
			through.cut()
			_, err = bidi.Recv()
			wantCode(t, err, codes.Unavailable)
			untilAnswered(t, other)
		})
	})
}

// What is no certificate, or not of this authority, is an error that says so, and an address of another host needs certificates.
func TestCertificatesOfTheByteStream(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		a, stranger := newSigner(t), newSigner(t)
		stream, _ := a.streamGateway()
		certificate, key := a.sign("backend")
		foreign, foreignKey := stranger.sign("backend")
		waitForPort(t, strings.TrimPrefix(stream, "device+tls://"))
		for name, c := range map[string]struct{ ca, certificate, key, words string }{
			"no file":            {a.file("none.pem"), certificate, key, "none.pem"},
			"no certificate":     {key, certificate, key, "holds no certificate"},
			"another's key":      {a.file("ca.pem"), certificate, foreignKey, "private key does not match"},
			"another authority":  {stranger.file("ca.pem"), certificate, key, "certificate"},
			"a stranger's own":   {a.file("ca.pem"), foreign, foreignKey, "remote error"},
			"not of the address": {a.file("ca.pem"), certificate, key, "127.0.0.1"},
		} {
			address := stream
			if name == "not of the address" {
				address = strings.Replace(stream, "localhost", "127.0.0.1", 1)
			}
			server := NewServer(Certificates(c.ca, c.certificate, c.key))
			err := server.Attach(address, "default")
			if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s: %v", name, err)
			}
			server.Stop()
		}
		for _, address := range []string{"device+tls://localhost", "device+tls://:1", "device+tls://localhost:0", "device+tls://localhost:x"} {
			if _, err := NewClient(address, WithVia("group:default"), WithCertificates("a", "b", "c")); err == nil || !strings.Contains(err.Error(), "host:port") {
				t.Errorf("%s: %v", address, err)
			}
		}
		if _, err := NewClient(stream, WithVia("group:default")); err == nil || !strings.Contains(err.Error(), "WithCertificates") {
			t.Errorf("%v", err)
		}
		if _, err := NewClient(stream, WithCertificates("a", "b", "c")); err == nil || !strings.Contains(err.Error(), "WithVia") {
			t.Errorf("%v", err)
		}
	})
}

func waitForPort(t *testing.T, address string) {
	t.Helper()
	eventually(t, "the gateway listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
