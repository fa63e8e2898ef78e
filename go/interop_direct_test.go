//go:build interop

//lint:file-ignore SA1019 the service is deprecated so that generated code is tested to say so

package tollfree_test

import (
	"bytes"
	"context"
	"testing"

	tollfree "github.com/tollfree/tollfree/go"
	direct "github.com/tollfree/tollfree/go/internal/directproto"
)

// Direct stubs send bytes by ref, and read them in the pool, as stock ones do; so do messages that vtprotobuf encodes.
func TestBytesOfDirectStubsGoByRef(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		coordinator := tollfree.RustPool(t)
		one, two := tollfree.JoinUntilEnd(t, coordinator), tollfree.JoinUntilEnd(t, coordinator)
		server := h.Prepare(tollfree.UsePool(two), tollfree.RequestsInPlace(direct.Test_Unary_FullMethodName, direct.Odd_Vt_FullMethodName))
		inPool := new(noted[bool])
		direct.RegisterTestServer(server, &directService{unary: func(_ context.Context, in *direct.Request) (*direct.Reply, error) {
			inPool.note(tollfree.LiesIn(two, in.Data))
			return &direct.Reply{Data: in.Data}, nil
		}})
		direct.RegisterOddServer(server, oddInPool{pool: two, inPool: inPool})
		h.Start(server)
		conn := h.Connect(tollfree.WithPool(one))
		buffer, err := one.Buffer(10_000)
		tollfree.WantNoError(t, err)
		defer buffer.Free()
		copy(buffer.Bytes(), "bytes of a pool")
		for _, call := range []func(payloads *tollfree.Payloads) ([]byte, error){
			func(payloads *tollfree.Payloads) ([]byte, error) {
				reply, err := direct.NewTestClient(conn).Unary(tollfree.TestContext(t), &direct.Request{Data: buffer.Bytes()}, tollfree.RepliesInPlace(payloads))
				return reply.GetData(), err
			},
			func(payloads *tollfree.Payloads) ([]byte, error) {
				reply, err := direct.NewOddClient(conn).Vt(tollfree.TestContext(t), &direct.Fast{Data: buffer.Bytes()}, tollfree.RepliesInPlace(payloads))
				return reply.GetData(), err
			},
		} {
			// A server that does not map the memory in time asks for the bytes.
			tollfree.Eventually(t, "the same memory comes back", func() bool {
				var payloads tollfree.Payloads
				defer payloads.Free()
				data, err := call(&payloads)
				tollfree.WantNoError(t, err)
				if !bytes.Equal(data, buffer.Bytes()) {
					t.Fatal("other bytes came back")
				}
				all := inPool.all()
				return &data[0] == &buffer.Bytes()[0] && all[len(all)-1]
			})
		}
	})
}

type oddInPool struct {
	direct.UnimplementedOddServer
	pool   *tollfree.Pool
	inPool *noted[bool]
}

func (s oddInPool) Vt(_ context.Context, in *direct.Fast) (*direct.Fast, error) {
	s.inPool.note(tollfree.LiesIn(s.pool, in.Data))
	return &direct.Fast{Data: in.Data}, nil
}
