// Package echo holds the generated stubs of the service that the bench calls.
package echo

//go:generate protoc -I../../proto --go_out=. --go_opt=paths=source_relative --go_opt=Mecho.proto=github.com/tollfree/tollfree/lab/bench/go/echo --go-grpc_out=. --go-grpc_opt=paths=source_relative --go-grpc_opt=Mecho.proto=github.com/tollfree/tollfree/lab/bench/go/echo echo.proto
