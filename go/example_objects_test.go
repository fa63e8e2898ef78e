package tollfree_test

import (
	"context"
	"fmt"
	"io"
	"log"

	tollfree "github.com/tollfree/tollfree/go"
	pb "github.com/tollfree/tollfree/go/internal/objectproto"
)

// A counter answers each object with one that has the length of its text.
type counter struct {
	pb.UnimplementedFreightObjectsServer
}

func (counter) Both(stream tollfree.ObjectBidiStreamingServer[pb.CargoObject, pb.CargoObject]) error {
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		out, err := pb.BuildCargo(func(b pb.CargoBuilder) { b.SetNumber(uint32(len(in.Read().GetText()))) })
		if err != nil {
			return err
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

// Code of protoc-gen-go-tollfree with objects=true: messages are built and read as they travel.
func Example_objects() {
	address, remove := socket()
	defer remove()
	server := tollfree.NewServer()
	pb.RegisterFreightObjectsServer(server, counter{})
	defer serve(server, address)()
	conn, err := tollfree.NewClient(address)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := pb.NewFreightObjectsClient(conn).Both(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{"one", "three"} {
		in, err := pb.BuildCargo(func(b pb.CargoBuilder) { b.SetText(text) })
		if err != nil {
			log.Fatal(err)
		}
		if err := stream.Send(in); err != nil {
			log.Fatal(err)
		}
		out, err := stream.Recv()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.Read().GetNumber())
	}
	// Output:
	// 3
	// 5
}
