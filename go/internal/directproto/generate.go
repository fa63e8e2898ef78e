// Package directproto holds what protoc-gen-go-tollfree generates, for tests.
package directproto

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-tollfree_out=. --go-tollfree_opt=paths=source_relative direct.proto
//go:generate protoc --include_imports --include_source_info --descriptor_set_out=../../cmd/protoc-gen-go-tollfree/testdata/direct.binpb direct.proto
