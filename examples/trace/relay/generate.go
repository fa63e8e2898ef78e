// Package relay holds the generated stubs of the trace demo's service.
package relay

//go:generate protoc -I../../../tests/stubs/proto --go_out=. --go_opt=paths=source_relative --go_opt=Mrelay.proto=github.com/tollfree/tollfree/examples/trace/relay --go-grpc_out=. --go-grpc_opt=paths=source_relative --go-grpc_opt=Mrelay.proto=github.com/tollfree/tollfree/examples/trace/relay relay.proto
