//go:build interop

package tollfree_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"

	tollfree "github.com/tollfree/tollfree/go"
	"github.com/tollfree/tollfree/go/internal/reference"
)

// Objects cross between the implementations, whose generators have to lay them out alike: directly, and by way of a gateway, which asks a server
// in Go for its tables.
func TestObjectsBetweenGoAndRust(t *testing.T) {
	t.Run("go calls rust", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			reference.Start(t, "serve-objects", h.Address())
			conn := h.Connect(tollfree.WithDefaultCallOptions(grpc.WaitForReady(true)))
			callFlat(t, conn)
			wantCame(t, conn.ObjectsCame())
			pingPong(t, conn)
		})
	})
	t.Run("rust calls go", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			server := h.Prepare()
			registerFreight(server)
			h.Start(server)
			reference.Run(t, time.Minute, "sent_objects: 3", "call-objects", h.Address())
			wantCame(t, server.ObjectsCame())
		})
	})
	t.Run("rust calls go by way of a gateway", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			gateway := tollfree.RustGateway(t)
			server := tollfree.NewServer()
			registerFreight(server)
			served := make(chan error, 1)
			go func() { served <- server.Attach(gateway, "default") }()
			tollfree.UntilCalled(t, gateway, func(conn grpc.ClientConnInterface) error {
				_, err := clientOf(conn).Unary(tollfree.TestContext(t), cargo(t, 1, "text"))
				return err
			})
			reference.Run(t, time.Minute, "sent_objects: 3", "call-objects", gateway, "--via", "group:default")
			wantCame(t, server.ObjectsCame())
			server.GracefulStop()
			tollfree.WantNoError(t, <-served)
		})
	})
	t.Run("go calls rust by way of a gateway", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			gateway := tollfree.RustGateway(t)
			reference.Start(t, "serve-objects", "--attach", gateway)
			conn := tollfree.UntilCalled(t, gateway, func(conn grpc.ClientConnInterface) error {
				_, err := clientOf(conn).Unary(tollfree.TestContext(t), cargo(t, 1, "text"))
				return err
			})
			callFlat(t, conn)
			wantCame(t, conn.ObjectsCame())
			pingPong(t, conn)
		})
	})
}

// pingPong sends objects on a stream, one after the other, that the server sends back: several times, since it says with the first calls that it takes
// them.
func pingPong(t *testing.T, conn *tollfree.ClientConn) {
	t.Helper()
	came := int64(0)
	for range 4 {
		before := conn.ObjectsCame()
		both, err := clientOf(conn).Both(tollfree.TestContext(t))
		tollfree.WantNoError(t, err)
		for i := range 40 {
			size, text := []int{0, 1, 64, 5_000, 300_000}[i%5], fmt.Sprint("cargo ", i)
			tollfree.WantNoError(t, both.Send(cargo(t, size, text)))
			reply, err := both.Recv()
			tollfree.WantNoError(t, err)
			tollfree.WantNoError(t, checkCargo(reply.Read(), size, text))
		}
		tollfree.WantNoError(t, both.CloseSend())
		if _, err := both.Recv(); err != io.EOF {
			t.Fatal(err)
		}
		came = conn.ObjectsCame() - before
	}
	if came != 40 {
		t.Errorf("%d objects have come back on a stream", came)
	}
}

// Large objects go by ref between members of a pool, both ways, alone and on streams.
func TestObjectsGoByRef(t *testing.T) {
	wantRefs := func(t *testing.T, member *tollfree.Pool) {
		t.Helper()
		if lent, taken := tollfree.RefCounts(member); lent < 5 || taken < 5 {
			t.Errorf("%d refs were passed on, and %d taken", lent, taken)
		}
	}
	t.Run("go calls rust", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			coordinator := tollfree.PoolName()
			reference.Start(t, "serve-objects", h.Address(), "--pool", coordinator)
			member := tollfree.JoinUntilEnd(t, coordinator)
			conn := h.Connect(tollfree.WithPool(member), tollfree.WithDefaultCallOptions(grpc.WaitForReady(true)))
			callFlat(t, conn)
			pingPong(t, conn)
			wantCame(t, conn.ObjectsCame())
			wantRefs(t, member)
		})
	})
	t.Run("rust calls go", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			coordinator := tollfree.RustPool(t)
			member := tollfree.JoinUntilEnd(t, coordinator)
			server := h.Prepare(tollfree.UsePool(member))
			registerFreight(server)
			h.Start(server)
			reference.Run(t, time.Minute, "sent_objects: 3", "call-objects", h.Address(), "--pool", coordinator)
			wantCame(t, server.ObjectsCame())
			wantRefs(t, member)
		})
	})
	t.Run("go calls go", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			coordinator := tollfree.RustPool(t)
			one, two := tollfree.JoinUntilEnd(t, coordinator), tollfree.JoinUntilEnd(t, coordinator)
			server := h.Prepare(tollfree.UsePool(two))
			registerFreight(server)
			h.Start(server)
			conn := h.Connect(tollfree.WithPool(one))
			callFlat(t, conn)
			pingPong(t, conn)
			wantRefs(t, one)
			wantRefs(t, two)
		})
	})
}

func wantCame(t *testing.T, came int64) {
	t.Helper()
	if came < 30 {
		t.Errorf("%d objects have come", came)
	}
}
