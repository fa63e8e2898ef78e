package tollfree

import (
	"math"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

func TestWhoMayConnect(t *testing.T) {
	nobody := func(uint32) bool { return false }
	own := func(uid uint32) bool { return uid == uint32(os.Geteuid()) }
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{}, Peers(nobody))
		h.newServer(1, &testService{}, Peers(own))
		_, err := pb.NewTestClient(h.connTo(0)).Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Unavailable, h.address(0), "user") // as of every refusal: spec/wire.md, section 19
		_, err = pb.NewTestClient(h.connTo(1, WithPeers(nobody))).Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.PermissionDenied, h.address(1), "user")
		_, err = pb.NewTestClient(h.connTo(1, WithPeers(own))).Unary(testContext(t), &pb.Request{})
		wantNoError(t, err)
	})
}

// Programs that come from grpc-go set limits that are none.
func TestLimitsThatAreNone(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{}, MaxConcurrentStreams(math.MaxUint32), MaxRecvMsgSize(math.MaxInt), MaxSendMsgSize(math.MaxInt))
		client := pb.NewTestClient(h.newConn(WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt), grpc.MaxCallSendMsgSize(math.MaxInt))))
		reply, err := client.Unary(testContext(t), &pb.Request{Data: make([]byte, 20<<20)})
		wantNoError(t, err)
		if len(reply.Data) != 20<<20 {
			t.Fatalf("%d bytes came", len(reply.Data))
		}
	})
}

func TestUserAgents(t *testing.T) {
	if _, err := NewClient("shm:///a", WithUserAgent(strings.Repeat("x", 108))); err != nil {
		t.Error(err)
	}
	if _, err := NewClient("shm:///a", WithUserAgent(strings.Repeat("x", 109))); err == nil || !strings.Contains(err.Error(), "108") {
		t.Errorf("a long name: %v", err)
	}
}
