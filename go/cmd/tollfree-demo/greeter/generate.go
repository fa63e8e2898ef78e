// Package greeter holds the generated stubs of the demo's services.
package greeter

//go:generate protoc -I../../../../cmd/demo/proto --go_out=. --go_opt=paths=source_relative --go_opt=Mgreeter.proto=github.com/tollfree/tollfree/go/cmd/tollfree-demo/greeter --go-grpc_out=. --go-grpc_opt=paths=source_relative --go-grpc_opt=Mgreeter.proto=github.com/tollfree/tollfree/go/cmd/tollfree-demo/greeter greeter.proto
