package main

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// answer has the plugin answer a request for direct.proto, as protoc makes it.
func answer(t *testing.T, embedded bool, files ...string) *pluginpb.CodeGeneratorResponse {
	t.Helper()
	encoded, err := os.ReadFile("testdata/direct.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(encoded, &set); err != nil {
		t.Fatal(err)
	}
	parameter := "paths=source_relative"
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{FileToGenerate: files, Parameter: &parameter, ProtoFile: set.File})
	if err != nil {
		t.Fatal(err)
	}
	generate(plugin, embedded)
	response := plugin.Response()
	if response.Error != nil {
		t.Fatal(*response.Error)
	}
	return response
}

// The package directproto compiles, and its tests make calls: so does what the plugin writes.
func TestGeneratedCodeIsTheOneThatTestsCall(t *testing.T) {
	response := answer(t, true, "direct.proto")
	if len(response.File) != 1 || response.File[0].GetName() != "direct_tollfree.pb.go" {
		t.Fatalf("got %d files: %v", len(response.File), response.File)
	}
	want, err := os.ReadFile("../../internal/directproto/direct_tollfree.pb.go")
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(response.File[0].GetContent(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(wanted)) {
		if got[i] != wanted[i] {
			t.Fatalf("line %d is\n%s\nwhere direct_tollfree.pb.go has\n%s\n(go generate ./internal/directproto writes that anew)", i+1, got[i], wanted[i])
		}
	}
	if len(got) != len(wanted) {
		t.Fatalf("%d lines, where direct_tollfree.pb.go has %d", len(got), len(wanted))
	}
}

func TestServicesNeedNotEmbedAnything(t *testing.T) {
	content := answer(t, false, "direct.proto").File[0].GetContent()
	if strings.Contains(content, "mustEmbedUnimplementedTestServer()\n}\n\n// UnimplementedTestServer") {
		t.Error("TestServer demands a method that only UnimplementedTestServer has")
	}
}

func TestFilesWithoutServicesGetNoCode(t *testing.T) {
	if files := answer(t, true, "google/protobuf/empty.proto").File; len(files) > 0 {
		t.Errorf("got %v", files)
	}
}

func TestProto3OptionalAndEditionsAreServed(t *testing.T) {
	response := answer(t, true)
	want := pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL | pluginpb.CodeGeneratorResponse_FEATURE_SUPPORTS_EDITIONS
	if response.GetSupportedFeatures() != uint64(want) || response.GetMaximumEdition() < int32(descriptorpb.Edition_EDITION_2023) {
		t.Errorf("features %d, editions up to %d", response.GetSupportedFeatures(), response.GetMaximumEdition())
	}
}
