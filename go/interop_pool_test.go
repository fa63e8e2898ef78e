//go:build interop

package tollfree

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/reference"
)

// rustPool is a pool that a server of the Rust implementation coordinates, which is a member, until the test ends.
func rustPool(t *testing.T) (server, coordinator string) {
	t.Helper()
	// A process that ends at once leaves a pool's socket file behind.
	server, coordinator = "shm://"+socketDirectory(t)+"/rust.sock", PoolName()
	reference.Serve(t, server, "--pool", coordinator)
	return server, coordinator
}

// join joins as soon as the coordinator listens. The test fails if this process does not get out of the pool at its end.
func join(t *testing.T, coordinator string) *Pool {
	t.Helper()
	var member *Pool
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		var err error
		if member, err = JoinPool(testContext(t), coordinator); err == nil {
			break
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		select {
		case <-member.Leave():
		case <-time.After(5 * time.Second):
			t.Error("this process does not get out of the pool: something is held")
		}
	})
	return member
}

// callOften makes one call after the other: those find memory in the pool.
func callOften(t *testing.T, conn *ClientConn) {
	t.Helper()
	for range 20 {
		interopUnary(t, grpc_testing.NewTestServiceClient(conn))
	}
}

func wantRefs(t *testing.T, member *Pool) {
	t.Helper()
	if lent, taken := member.member.Counts(); lent < 10 || taken < 10 {
		t.Errorf("%d refs were passed on, and %d taken", lent, taken)
	}
}

// gRPC's cases, with large payloads by way of a pool, in every pairing.
func TestPayloadsGoByRef(t *testing.T) {
	t.Run("go calls rust", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			server, coordinator := rustPool(t)
			member := join(t, coordinator)
			conn, err := NewClient(server, WithDefaultCallOptions(grpc.WaitForReady(true)), WithPool(member))
			wantNoError(t, err)
			t.Cleanup(func() { conn.Close() })
			runCases(t, conn)
			callOften(t, conn)
			wantRefs(t, member)
		})
	})
	t.Run("rust calls go", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			_, coordinator := rustPool(t)
			member := join(t, coordinator)
			server := NewServer(UsePool(member))
			grpc_testing.RegisterTestServiceServer(server, &interopService{})
			h.serve(server, 0)
			reference.Call(t, h.address(0), coordinator, "", 5*time.Minute, notByStubs...)
			wantRefs(t, member)
		})
	})
	t.Run("go calls go", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			_, coordinator := rustPool(t)
			one, two := join(t, coordinator), join(t, coordinator)
			server := NewServer(UsePool(two))
			grpc_testing.RegisterTestServiceServer(server, &interopService{})
			h.serve(server, 0)
			conn, err := NewClient(h.address(0), WithPool(one))
			wantNoError(t, err)
			t.Cleanup(func() { conn.Close() })
			runCases(t, conn)
			callOften(t, conn)
			wantRefs(t, one)
			wantRefs(t, two)
		})
	})
	t.Run("a buffer of the pool", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			_, coordinator := rustPool(t)
			one, two := join(t, coordinator), join(t, coordinator)
			server := NewServer(UsePool(two), UnknownServiceHandler(forward), ForceServerCodecV2(inPlace{}))
			h.serve(server, 0)
			conn, err := NewClient(h.address(0), WithPool(one))
			wantNoError(t, err)
			t.Cleanup(func() { conn.Close() })
			buffer, err := one.Buffer(200_000)
			wantNoError(t, err)
			for i := range buffer.Bytes() {
				buffer.Bytes()[i] = byte(i * 7)
			}
			// The server passes on what it got, so that the same memory comes back; where it does not map that in time, it asks for the bytes.
			eventually(t, "the same memory comes back", func() bool {
				var reply mem.BufferSlice
				buffer.Ref()
				wantNoError(t, conn.Invoke(testContext(t), "/a.B/C", &mem.BufferSlice{buffer}, &reply, grpc.ForceCodecV2(inPlace{})))
				defer reply.Free()
				if got := reply.Materialize(); !bytes.Equal(got, buffer.Bytes()) {
					t.Fatalf("%d other bytes came back", len(got))
				}
				return &reply[0].ReadOnlyData()[0] == &buffer.Bytes()[0]
			})
			buffer.Free()
		})
	})
}

// Only who is invited joins a pool by invitation, once for each.
func TestInvitationsToPools(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		server, coordinator := "shm://"+socketDirectory(t)+"/rust.sock", PoolName()
		invitations, _ := reference.StartAndRead(t, 2, "serve", server, "--pool", coordinator, "--invite", "2")
		if len(invitations) != 2 {
			t.Fatalf("%d invitations", len(invitations))
		}
		ctx := testContext(t)
		if _, err := JoinPool(ctx, coordinator); err == nil || !strings.Contains(err.Error(), "invited") {
			t.Errorf("without an invitation: %v", err)
		}
		for _, none := range []string{"", "00", invitations[0] + "00", "x" + invitations[0][1:]} {
			if _, err := JoinPoolByInvitation(ctx, coordinator, none); err == nil || !strings.Contains(err.Error(), "hexadecimal") {
				t.Errorf("%q: %v", none, err)
			}
		}
		if _, err := JoinPoolByInvitation(ctx, coordinator, strings.Repeat("0", 32)); err == nil || !strings.Contains(err.Error(), "invited") {
			t.Errorf("an invitation that nobody has given: %v", err)
		}
		member, err := JoinPoolByInvitation(ctx, coordinator, invitations[0])
		wantNoError(t, err)
		defer func() { <-member.Leave() }()
		if _, err := JoinPoolByInvitation(ctx, coordinator, invitations[0]); err == nil || strings.Contains(err.Error(), invitations[0]) {
			t.Errorf("the same invitation again: %v", err)
		}
		conn, err := NewClient(server, WithPool(member), WithDefaultCallOptions(grpc.WaitForReady(true)))
		wantNoError(t, err)
		defer conn.Close()
		callOften(t, conn)
		wantRefs(t, member)
	})
}

// inPlace is a codec whose messages are their bytes where they lie.
type inPlace struct{}

func (inPlace) Name() string                           { return "inPlace" }
func (inPlace) Marshal(v any) (mem.BufferSlice, error) { return *v.(*mem.BufferSlice), nil }
func (inPlace) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	*v.(*mem.BufferSlice) = append(mem.BufferSlice(nil), data...)
	return nil
}

// forward sends back the message that comes.
func forward(_ any, stream grpc.ServerStream) error {
	var data mem.BufferSlice
	if err := stream.RecvMsg(&data); err != nil {
		return err
	}
	return stream.SendMsg(&data)
}
