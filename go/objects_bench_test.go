package tollfree_test

import (
	"context"
	"testing"

	tollfree "github.com/tollfree/tollfree/go"
	pb "github.com/tollfree/tollfree/go/internal/objectproto"
)

// plainEcho sends back what comes, as protoc-gen-go's message.
type plainEcho struct{ pb.UnimplementedFreightServer }

func (plainEcho) Unary(_ context.Context, in *pb.Cargo) (*pb.Cargo, error) { return in, nil }

// BenchmarkCargo compares direct stubs and objects, with a message that has a value in each field: each call builds the request and reads a field
// of the reply.
func BenchmarkCargo(b *testing.B) {
	inline := tollfree.Inline(pb.Freight_Unary_FullMethodName)
	numbers := make([]uint64, 100)
	b.Run("messages", func(b *testing.B) {
		h := tollfree.NewSharedMemory(b)
		server := h.Prepare(inline)
		pb.RegisterFreightServer(server, plainEcho{})
		h.Start(server)
		client := pb.NewFreightClient(h.Connect())
		b.ReportAllocs()
		for b.Loop() {
			in := &pb.Cargo{Text: "text", Raw: []byte("raw"), Numbers: numbers, Inner: &pb.Cargo{Text: "inner"}, Number: 9}
			out, err := client.Unary(context.Background(), in)
			if err != nil || out.GetNumber() != 9 {
				b.Fatal(err)
			}
		}
	})
	b.Run("objects", func(b *testing.B) {
		h := tollfree.NewSharedMemory(b)
		server := h.Prepare(inline)
		registerFreight(server)
		h.Start(server)
		client := pb.NewFreightObjectsClient(h.Connect())
		b.ReportAllocs()
		for b.Loop() {
			in, err := pb.BuildCargo(func(b pb.CargoBuilder) {
				b.SetText("text")
				b.SetRaw([]byte("raw"))
				b.SetNumbers(numbers)
				b.MakeInner().SetText("inner")
				b.SetNumber(9)
			})
			if err != nil {
				b.Fatal(err)
			}
			out, err := client.Unary(context.Background(), in)
			if err != nil || out.Read().GetNumber() != 9 {
				b.Fatal(err)
			}
		}
	})
}
