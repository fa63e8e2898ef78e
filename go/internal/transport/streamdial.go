package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/device"
	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// StreamScheme begins addresses of gateways of other hosts.
const StreamScheme = "device+tls://"

// Certificates are what to show to a gateway of another host, and to trust there: PEM files, which are read anew for each connection.
type Certificates struct {
	// Authorities sign the gateway's certificate; Certificate and Key are this process's own.
	Authorities, Certificate, Key string
}

// A streamAddress is where a gateway of another host is met.
type streamAddress struct {
	host, port   string
	certificates *Certificates
}

func (a *streamAddress) String() string { return StreamScheme + net.JoinHostPort(a.host, a.port) }

// CheckStreamAddress says what is wrong with the address of a gateway of another host.
func CheckStreamAddress(address string) error {
	_, err := parseStreamAddress(address, nil)
	return err
}

func parseStreamAddress(address string, certificates *Certificates) (*streamAddress, error) {
	rest, ok := strings.CutPrefix(address, StreamScheme)
	host, port, err := net.SplitHostPort(rest)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if !ok || err != nil || portErr != nil || number == 0 || host == "" {
		return nil, fmt.Errorf("%q is no address of a gateway of another host: write %shost:port", address, StreamScheme)
	}
	return &streamAddress{host, port, certificates}, nil
}

// A certificateError is a file that can't be used.
type certificateError struct{ error }

// config is what TLS needs.
//
// Errors: a *certificateError.
func (a *streamAddress) config() (*tls.Config, error) {
	fail := func(file string, err error) (*tls.Config, error) {
		return nil, &certificateError{fmt.Errorf("%s: %w", file, err)}
	}
	authorities, err := os.ReadFile(a.certificates.Authorities)
	if err != nil {
		return nil, &certificateError{err}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return fail(a.certificates.Authorities, errors.New("holds no certificate in PEM"))
	}
	own, err := tls.LoadX509KeyPair(a.certificates.Certificate, a.certificates.Key)
	if err != nil {
		return fail(a.certificates.Certificate, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{own}, ServerName: a.host, NextProtos: []string{device.Protocol},
	}, nil
}

// meet makes the handshake with the gateway.
func (a *streamAddress) meet(ctx context.Context, config *Config, as *presentation) (met *meeting, err error) {
	secret, err := a.config()
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	plain, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(a.host, a.port))
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, secret)
	m := &meeting{otherClock: true}
	defer func() {
		if err != nil {
			_ = plain.Close()
			m.unmap()
		}
	}()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != device.Protocol {
		return nil, errors.New("the gateway does not say in TLS that it speaks " + device.Protocol)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if err := m.greet(conn, config, as); err != nil {
		stop()
		return nil, err
	}
	if !stop() {
		return nil, ctx.Err()
	}
	_ = conn.SetDeadline(time.Time{})
	state := conn.ConnectionState()
	m.secret, m.remote = &state, conn.RemoteAddr()
	m.conn = newStream(conn, device.NewWindow(m.own.Memory(), wire.RingLenDefault, m.peer, int(m.said.RingLen)))
	return m, nil
}

// greet says what this side is, and makes both windows.
func (m *meeting) greet(conn *tls.Conn, config *Config, as *presentation) (err error) {
	if m.own, err = region.CreatePrivate(wire.RingOff + wire.RingLenDefault); err != nil {
		return err
	}
	ring.InitControlPage(m.own.Memory(), wire.CPUUnknown)
	hello := config.hello(as.kind)
	// What needs common memory, or a common kernel, is not there.
	hello.Features &= wire.FeatureLoad
	hello.AreaLenMax, hello.Pool = 0, [16]byte{}
	hello.BodyLen = uint32(len(as.registration))
	bytes := hello.Encode()
	if _, err := conn.Write(append(bytes[:], as.registration...)); err != nil {
		return err
	}
	var answer [wire.HelloLen]byte
	_, err = io.ReadFull(conn, answer[:])
	m.received = clockNow()
	if err != nil {
		return err
	}
	if !wire.MagicFits(answer[:]) {
		return errors.New("the gateway answers with what is no handshake")
	}
	said := wire.DecodeHello(&answer)
	if err := checkAnswer(&said, as); err != nil {
		return err
	}
	if refusal := said.CheckSizes(true); refusal != nil {
		return refusal
	}
	said.Features &= wire.FeatureLoad
	said.AreaLenMax = 0
	mirror, err := region.CreatePrivate(wire.RingOff + int(said.RingLen))
	if err != nil {
		return err
	}
	m.peer, m.said = mirror.Memory(), said
	return nil
}

// DialStream makes a session with the gateway of another host, which makes its calls at a target.
//
// Errors are statuses, as Dial's.
func DialStream(ctx context.Context, address, target string, certificates *Certificates, config Config) (call.Client, error) {
	where, err := parseStreamAddress(address, certificates)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	registration, err := wire.EncodeTarget(target)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	config = config.filled()
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	met, err := where.meet(ctx, &config, &presentation{kind: wire.KindVia, registration: registration})
	if err != nil {
		return nil, status.Errorf(contextOr(ctx, codes.Unavailable), "%s: %s", where, err)
	}
	return beginClient(met, where.String(), &config), nil
}

// isTLS says whether another attempt is refused, too, by what certificates say.
func isTLS(err error) bool {
	var file *certificateError
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert *net.OpError
	return errors.As(err, &file) || errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &alert) && alert.Op == "remote error"
}
