// Package streams holds the generated stubs of the service whose messages stream.
package streams

//go:generate protoc -I../../proto --go_out=. --go_opt=paths=source_relative --go_opt=Mstream.proto=github.com/tollfree/tollfree/lab/bench/go/streams --go-grpc_out=. --go-grpc_opt=paths=source_relative --go-grpc_opt=Mstream.proto=github.com/tollfree/tollfree/lab/bench/go/streams stream.proto
