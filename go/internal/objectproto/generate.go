// Package objectproto holds what protoc-gen-go-tollfree generates with objects=true, for tests: of tests/stubs/proto/freight.proto, which the
// reference's tests have, too.
package objectproto

//go:generate protoc -I ../../../tests/stubs/proto --go_out=. --go_opt=paths=source_relative --go_opt=Mfreight.proto=github.com/tollfree/tollfree/go/internal/objectproto --go-tollfree_out=. --go-tollfree_opt=paths=source_relative,objects=true,Mfreight.proto=github.com/tollfree/tollfree/go/internal/objectproto freight.proto
//go:generate protoc -I ../../../tests/stubs/proto --include_imports --include_source_info --descriptor_set_out=../../cmd/protoc-gen-go-tollfree/testdata/freight.binpb freight.proto
