module github.com/tollfree/tollfree/lab/bench/go

go 1.26.0

require (
	github.com/tollfree/tollfree/go v0.0.0
	golang.org/x/sys v0.50.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
)

replace github.com/tollfree/tollfree/go => ../../../go
