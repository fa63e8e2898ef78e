package tollfree

import (
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/transport"
)

// OfferUpgrade has a server on TCP, a *grpc.Server that serves the same services, tell clients on this host of the listener's socket:
// clients that know an Upgrade, and Rust clients at level 0, move over to it by themselves. It is called before tcp serves. The
// listener is this server's, at a path.
func (s *Server) OfferUpgrade(tcp grpc.ServiceRegistrar, l *Listener) error {
	offering, ok := l.listener.(interface {
		Offer() (transport.Offer, bool)
	})
	var offer transport.Offer
	if ok {
		offer, ok = offering.Offer()
	}
	if l.server != s || !ok {
		return fmt.Errorf("tollfree: OfferUpgrade of %s: only a path that this server listens at can be offered", l.Address())
	}
	for _, c := range []byte(offer.Address) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("tollfree: OfferUpgrade of %q: only a path in printable ASCII, without spaces, can be offered", offer.Address)
		}
	}
	offerer := &offerer{offer}
	stream := func(name string, handler grpc.StreamHandler) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, Handler: handler, ClientStreams: true, ServerStreams: true}
	}
	tcp.RegisterService(&grpc.ServiceDesc{
		ServiceName: upgradeService, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{stream("Ask", offerer.ask), stream("Confirm", offerer.confirm)},
	}, offerer)
	return nil
}

// An offerer answers clients on TCP.
type offerer struct{ offer transport.Offer }

func (o *offerer) ask(_ any, stream grpc.ServerStream) error {
	from, ok := peer.FromContext(stream.Context())
	if !ok {
		return status.Error(codes.Unavailable, "this connection is not known by its addresses")
	}
	if from.AuthInfo != nil && from.AuthInfo.AuthType() != "insecure" {
		return status.Error(codes.Unavailable, "nothing is offered over a connection with transport security")
	}
	ends, err := endsOf(from.Addr, from.LocalAddr)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if !isOfThisHost(ends.Client.Addr(), ends.Server.Addr()) {
		// It could not come to the socket, and learns nothing of it.
		return status.Error(codes.Unavailable, "only clients on the server's host are told of its socket")
	}
	token, err := o.offer.Tokens.Give(ends)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return stream.SetHeader(metadata.Pairs(headerOffer, o.offer.Address, headerFile, o.offer.File, headerToken, token.String()))
}

func (o *offerer) confirm(_ any, stream grpc.ServerStream) error {
	header, _ := metadata.FromIncomingContext(stream.Context())
	answer, err := transport.ParseToken(first(header, headerAnswer))
	if err == nil {
		if token, ok := o.offer.Tokens.Confirm(answer); ok {
			return stream.SetHeader(metadata.Pairs(headerToken, token.String()))
		}
	}
	return status.Error(codes.NotFound, "no token was answered so")
}

// isOfThisHost says whether a client's address is one of this host's: a loopback address, the one that it has reached, or any other
// that a socket can be bound to here.
func isOfThisHost(client, server netip.Addr) bool {
	client, server = client.Unmap(), server.Unmap()
	if client.IsLoopback() || client == server {
		return true
	}
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(client, 0)))
	if err != nil {
		return false
	}
	_ = socket.Close()
	return true
}
