//go:build interop

package tollfree_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/grpc"

	tollfree "github.com/tollfree/tollfree/go"
	pb "github.com/tollfree/tollfree/go/internal/objectproto"
	"github.com/tollfree/tollfree/go/internal/reference"
)

// inPlaceLen is the length of a body whose object goes by ref.
const inPlaceLen = 300_000

// inPlaceEcho sends back what comes, and counts the objects that it has read in the pool.
type inPlaceEcho struct {
	pb.UnimplementedFreightObjectsServer
	member *tollfree.Pool
	inPool atomic.Int64
}

func (s *inPlaceEcho) count(in pb.CargoObject) {
	if in.Flat().IsShared() && tollfree.LiesIn(s.member, in.Flat().Bytes()) {
		s.inPool.Add(1)
	}
}

func (s *inPlaceEcho) Unary(_ context.Context, in pb.CargoObject) (pb.CargoObject, error) {
	s.count(in)
	return in, nil
}

func (s *inPlaceEcho) Both(stream tollfree.ObjectBidiStreamingServer[pb.CargoObject, pb.CargoObject]) error {
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		s.count(in)
		if err := stream.Send(in); err != nil {
			return err
		}
	}
}

func inPlaceMethods() tollfree.ServerOption {
	return tollfree.RequestsInPlace(pb.Freight_Unary_FullMethodName, pb.Freight_Both_FullMethodName)
}

// readInPool says whether an object is read in the pool, and has the fields it should have.
func readInPool(t *testing.T, member *tollfree.Pool, o pb.CargoObject, size int, text string) bool {
	t.Helper()
	read := o.Read()
	tollfree.WantNoError(t, checkCargo(read, size, text))
	inPool := tollfree.LiesIn(member, o.Flat().Bytes())
	if inPool != o.Flat().IsShared() {
		t.Fatalf("an object in the pool: %v; marked as shared: %v", inPool, o.Flat().IsShared())
	}
	if said := read.GetText(); inPool && len(said) > 0 {
		start, at := uintptr(unsafe.Pointer(unsafe.SliceData(o.Flat().Bytes()))), uintptr(unsafe.Pointer(unsafe.StringData(said)))
		if at >= start && at < start+uintptr(len(o.Flat().Bytes())) {
			t.Fatal("a string lies in memory that another process can write")
		}
	}
	return inPool
}

// readReplies makes calls and a stream whose replies are read in the pool.
func readReplies(t *testing.T, conn grpc.ClientConnInterface, member *tollfree.Pool) {
	t.Helper()
	client := clientOf(conn)
	var payloads tollfree.Payloads
	defer payloads.Free()
	unary := func() bool {
		defer payloads.Free()
		reply, err := client.Unary(tollfree.TestContext(t), cargo(t, inPlaceLen, "unary"), tollfree.RepliesInPlace(&payloads))
		tollfree.WantNoError(t, err)
		return readInPool(t, member, reply, inPlaceLen, "unary")
	}
	// The other end says with the first calls that it takes objects, and maps memory meanwhile.
	tollfree.Eventually(t, "an object is read in the pool", unary)
	for range 20 {
		if !unary() {
			t.Fatal("an object was copied")
		}
	}
	// Without the option, and where they are short, objects are the program's own.
	reply, err := client.Unary(tollfree.TestContext(t), cargo(t, inPlaceLen, "own"))
	if tollfree.WantNoError(t, err); readInPool(t, member, reply, inPlaceLen, "own") {
		t.Error("an object that nobody keeps lies in the pool")
	}
	reply, err = client.Unary(tollfree.TestContext(t), cargo(t, 10, "short"), tollfree.RepliesInPlace(&payloads))
	if tollfree.WantNoError(t, err); readInPool(t, member, reply, 10, "short") {
		t.Error("a short object lies in the pool")
	}
	stream := func() (inPool int) {
		both, err := client.Both(tollfree.TestContext(t), tollfree.RepliesInPlace(&payloads))
		tollfree.WantNoError(t, err)
		for i := range 20 {
			text := fmt.Sprint("stream ", i)
			tollfree.WantNoError(t, both.Send(cargo(t, inPlaceLen, text)))
			reply, err := both.Recv()
			if tollfree.WantNoError(t, err); readInPool(t, member, reply, inPlaceLen, text) {
				inPool++
			}
			payloads.Free()
		}
		tollfree.WantNoError(t, both.CloseSend())
		if _, err := both.Recv(); err != io.EOF {
			t.Fatal(err)
		}
		return inPool
	}
	tollfree.Eventually(t, "the server takes objects on streams", func() bool { return stream() > 0 })
	if n := stream(); n != 20 {
		t.Errorf("%d of 20 objects of a stream were read in the pool", n)
	}
}

// Objects that come by ref are verified and read where they lie, where a call or a method asks for that. At the end of each test its members get out of
// the pool: nothing is held.
func TestObjectsAreReadInPlace(t *testing.T) {
	t.Run("go calls go", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			coordinator := tollfree.RustPool(t)
			one, two := tollfree.JoinUntilEnd(t, coordinator), tollfree.JoinUntilEnd(t, coordinator)
			echo := &inPlaceEcho{member: two}
			server := h.Prepare(tollfree.UsePool(two), inPlaceMethods())
			pb.RegisterFreightObjectsServer(server, echo)
			h.Start(server)
			conn := h.Connect(tollfree.WithPool(one))
			readReplies(t, conn, one)
			if echo.inPool.Load() < 40 {
				t.Errorf("%d requests were read in the pool", echo.inPool.Load())
			}
			// Clients that know no objects call the same methods.
			reply, err := pb.NewFreightClient(conn).Unary(tollfree.TestContext(t), &pb.Cargo{Text: "plain", Body: make([]byte, inPlaceLen)})
			if tollfree.WantNoError(t, err); reply.Text != "plain" || len(reply.Body) != inPlaceLen {
				t.Errorf("%q and %d bytes came back", reply.Text, len(reply.Body))
			}
			// So do calls that need more than a session.
			callFlat(t, conn, grpc.UseCompressor("gzip"))
		})
	})
	t.Run("go calls rust", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			coordinator := tollfree.PoolName()
			reference.Start(t, "serve-objects", h.Address(), "--pool", coordinator)
			member := tollfree.JoinUntilEnd(t, coordinator)
			readReplies(t, h.Connect(tollfree.WithPool(member), tollfree.WithDefaultCallOptions(grpc.WaitForReady(true))), member)
		})
	})
	t.Run("rust calls go", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			coordinator := tollfree.RustPool(t)
			echo := &inPlaceEcho{member: tollfree.JoinUntilEnd(t, coordinator)}
			server := h.Prepare(tollfree.UsePool(echo.member), inPlaceMethods())
			pb.RegisterFreightObjectsServer(server, echo)
			h.Start(server)
			reference.Run(t, time.Minute, "sent_objects: 3", "call-objects", h.Address(), "--pool", coordinator)
			if echo.inPool.Load() < 5 {
				t.Errorf("%d requests were read in the pool", echo.inPool.Load())
			}
		})
	})
}

// What a program still needs of an object, it holds beyond the object's end.
func TestAnObjectIsHeldBeyondItsCall(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		coordinator := tollfree.RustPool(t)
		one, two := tollfree.JoinUntilEnd(t, coordinator), tollfree.JoinUntilEnd(t, coordinator)
		server := h.Prepare(tollfree.UsePool(two))
		registerFreight(server)
		h.Start(server)
		conn := h.Connect(tollfree.WithPool(one))
		var held *tollfree.PoolBuffer
		var object pb.CargoObject
		tollfree.Eventually(t, "an object is read in the pool", func() bool {
			var payloads tollfree.Payloads
			defer payloads.Free()
			reply, err := clientOf(conn).Unary(tollfree.TestContext(t), cargo(t, inPlaceLen, "held"), tollfree.RepliesInPlace(&payloads))
			tollfree.WantNoError(t, err)
			if !reply.Flat().IsShared() {
				return false
			}
			object = reply
			held, err = one.Hold(reply.Flat().Bytes())
			tollfree.WantNoError(t, err)
			return true
		})
		for range 30 {
			other, err := one.Buffer(inPlaceLen)
			tollfree.WantNoError(t, err)
			clear(other.Bytes())
			other.Free()
		}
		tollfree.WantNoError(t, checkCargo(object.Read(), inPlaceLen, "held"))
		held.Free()
	})
}

// blockingEcho answers when its test lets it.
type blockingEcho struct {
	inPlaceEcho
	came   chan pb.CargoObject
	answer chan struct{}
}

func (s *blockingEcho) Unary(_ context.Context, in pb.CargoObject) (pb.CargoObject, error) {
	if in.Flat().IsShared() {
		s.came <- in
		<-s.answer
	}
	return in, nil
}

// A request stays readable when the process that has sent it, and owns its memory, is killed.
func TestAnObjectStaysWhenItsOwnerIsKilled(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		coordinator := tollfree.RustPool(t)
		member := tollfree.JoinUntilEnd(t, coordinator)
		echo := &blockingEcho{came: make(chan pb.CargoObject, 100), answer: make(chan struct{})}
		server := h.Prepare(tollfree.UsePool(member), inPlaceMethods())
		pb.RegisterFreightObjectsServer(server, echo)
		h.Start(server)
		kill := reference.StartToKill(t, "call-objects", h.Address(), "--pool", coordinator)
		var object pb.CargoObject
		select {
		case object = <-echo.came:
		case <-time.After(30 * time.Second):
			t.Fatal("no object came by ref")
		}
		before := bytes.Clone(object.Flat().Bytes())
		kill()
		// The coordinator tells of the end: the handler reads on meanwhile.
		for until := time.Now().Add(100 * time.Millisecond); time.Now().Before(until); {
			if !bytes.Equal(object.Flat().Bytes(), before) {
				t.Fatal("the bytes have changed with their owner's end")
			}
		}
		if text := object.Read().GetText(); text == "" {
			t.Error("an object without its text")
		}
		close(echo.answer)
	})
}
