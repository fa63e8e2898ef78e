//go:build interop

package tollfree_test

import (
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
		})
	})
}

func wantCame(t *testing.T, came int64) {
	t.Helper()
	if came < 30 {
		t.Errorf("%d objects have come", came)
	}
}
