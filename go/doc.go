// Package tollfree makes gRPC calls between processes of one Linux host through shared memory, with the stubs that
// protoc-gen-go-grpc generates.
//
// A server registers services as with package grpc:
//
//	server := tollfree.NewServer()
//	pb.RegisterGreeterServer(server, &greeter{})
//	err := server.Serve("shm:///run/app/greeter.sock")
//
// A client is made for that address:
//
//	conn, err := tollfree.NewClient("shm:///run/app/greeter.sock")
//	client := pb.NewGreeterClient(conn)
//
// Options of calls are grpc's own. Options of NewClient and NewServer have grpc's names, in this package: grpc's types of them
// are opaque. The guide, docs/guide/go.md, lists them all, and what differs from grpc-go.
package tollfree
