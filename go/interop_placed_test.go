//go:build interop

package tollfree_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	tollfree "github.com/tollfree/tollfree/go"
	pb "github.com/tollfree/tollfree/go/internal/objectproto"
)

// othersExtents are extents of pools that this process maps and the gateway writes.
func othersExtents(t *testing.T) (n int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	tollfree.WantNoError(t, err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, " r--s ") && strings.Contains(line, "memfd:tollfree-extent") {
			n++
		}
	}
	return n
}

// A gateway places long requests from elsewhere in a pool of its own, and has a server in Go join it, which reads them there if its methods ask for
// that; when the server has gone, so has the pool's memory.
func TestAGatewayPlacesObjectsForAServer(t *testing.T) {
	t.Run("copied", func(t *testing.T) { placeObjects(t, false) })
	t.Run("read in place", func(t *testing.T) { placeObjects(t, true, tollfree.RequestsInPlace(pb.Freight_Unary_FullMethodName)) })
}

// sharedEcho counts the requests that lie in memory of another process.
type sharedEcho struct {
	flatEcho
	shared *atomic.Int64
}

func (s sharedEcho) Unary(ctx context.Context, in pb.CargoObject) (pb.CargoObject, error) {
	if in.Flat().IsShared() {
		s.shared.Add(1)
	}
	return s.flatEcho.Unary(ctx, in)
}

func placeObjects(t *testing.T, inPlace bool, options ...tollfree.ServerOption) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		gateway, world := tollfree.RustGatewayAndWorld(t)
		server := tollfree.NewServer(options...)
		echo := sharedEcho{shared: new(atomic.Int64)}
		pb.RegisterFreightObjectsServer(server, echo)
		served := make(chan error, 1)
		go func() { served <- server.Attach(gateway, "default") }()
		conn, err := grpc.NewClient(world, grpc.WithTransportCredentials(insecure.NewCredentials()))
		tollfree.WantNoError(t, err)
		defer conn.Close()
		client := pb.NewFreightClient(conn)
		body := make([]byte, 300_000)
		for i := range body {
			body[i] = byte(i * 7)
		}
		tollfree.Eventually(t, "an object comes by the gateway's pool", func() bool {
			reply, err := client.Unary(tollfree.TestContext(t), &pb.Cargo{Body: body, Text: "käse"}, grpc.WaitForReady(true))
			if err != nil {
				return false
			}
			if string(reply.Body) != string(body) || reply.Text != "käse" {
				t.Fatalf("another cargo of %d bytes came back", len(reply.Body))
			}
			return server.ObjectsCame() > 0 && othersExtents(t) > 0 && echo.shared.Load() > 0 == inPlace
		})
		if shared := echo.shared.Load(); shared > 0 != inPlace {
			t.Errorf("%d requests were read in the gateway's memory", shared)
		}
		server.GracefulStop()
		tollfree.WantNoError(t, <-served)
		tollfree.Eventually(t, "the pool's memory is given back", func() bool { return othersExtents(t) == 0 })
	})
}
