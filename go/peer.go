package tollfree

import (
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tollfree/tollfree/go/internal/call"
)

// AuthInfo is the AuthInfo of every peer.Peer of this host: the process at the other end, as the kernel reports it (SO_PEERCRED). Its
// security level is PrivacyAndIntegrity, as that of grpc's credentials/local at Unix sockets, so call credentials that
// require transport security are sent.
//
// Decide by UID and GID; PID is for people to read, since the kernel reuses it.
type AuthInfo struct {
	credentials.CommonAuthInfo
	PID      int32
	UID, GID uint32
}

// AuthType is "local", as that of grpc's credentials/local.
func (AuthInfo) AuthType() string { return "local" }

// peerOf has grpc's credentials.TLSInfo of a gateway of another host: the kernel knows nothing of it.
func peerOf(p call.Peer) *peer.Peer {
	if p.Secret != nil {
		return &peer.Peer{Addr: p.Remote, AuthInfo: credentials.TLSInfo{
			State: *p.Secret, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}}
	}
	addr := socketAddr(p.Address)
	return &peer.Peer{
		Addr:      addr,
		LocalAddr: addr,
		AuthInfo: AuthInfo{
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
			PID:            p.PID,
			UID:            p.UID,
			GID:            p.GID,
		},
	}
}
