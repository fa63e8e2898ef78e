// Package direct holds the stubs of the service that the bench calls, as protoc-gen-go-tollfree generates them.
package direct

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-tollfree_out=. --go-tollfree_opt=paths=source_relative direct.proto
