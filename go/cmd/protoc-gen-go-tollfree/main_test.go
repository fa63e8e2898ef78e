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
	return answerOf(t, "testdata/direct.binpb", "paths=source_relative", func(plugin *protogen.Plugin) error {
		generate(plugin, embedded)
		return nil
	}, files...)
}

// answerOf has make answer a request with the descriptors of a file.
func answerOf(t *testing.T, set, parameter string, make func(*protogen.Plugin) error, files ...string) *pluginpb.CodeGeneratorResponse {
	t.Helper()
	encoded, err := os.ReadFile(set)
	if err != nil {
		t.Fatal(err)
	}
	var descriptors descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(encoded, &descriptors); err != nil {
		t.Fatal(err)
	}
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{FileToGenerate: files, Parameter: &parameter, ProtoFile: descriptors.File})
	if err != nil {
		t.Fatal(err)
	}
	if err := make(plugin); err != nil {
		t.Fatal(err)
	}
	response := plugin.Response()
	if response.Error != nil {
		t.Fatal(*response.Error)
	}
	return response
}

// The packages directproto and objectproto compile, and their tests make calls: so does what the plugin writes.
func TestGeneratedCodeIsTheOneThatTestsCall(t *testing.T) {
	compare(t, answer(t, true, "direct.proto"), "direct_tollfree.pb.go", "../../internal/directproto")
	objects := answerOf(t, "testdata/freight.binpb", "paths=source_relative,Mfreight.proto=github.com/tollfree/tollfree/go/internal/objectproto", generateObjects, "freight.proto")
	compare(t, objects, "freight_objects.pb.go", "../../internal/objectproto")
}

// compare finds the first line in which an answer's one file differs from that of a directory.
func compare(t *testing.T, response *pluginpb.CodeGeneratorResponse, name, directory string) {
	t.Helper()
	if len(response.File) != 1 || response.File[0].GetName() != name {
		t.Fatalf("got %d files: %v", len(response.File), response.File)
	}
	want, err := os.ReadFile(directory + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(response.File[0].GetContent(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(wanted)) {
		if got[i] != wanted[i] {
			t.Fatalf("line %d is\n%s\nwhere %s has\n%s\n(go generate %s writes that anew)", i+1, got[i], name, wanted[i], directory)
		}
	}
	if len(got) != len(wanted) {
		t.Fatalf("%d lines, where %s has %d", len(got), name, len(wanted))
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

// Messages of other files, which get no readers, are read as package flat has them; a service with such messages has no objects for these methods.
func TestObjectsOfOtherFiles(t *testing.T) {
	content := answerOf(t, "testdata/direct.binpb", "paths=source_relative", generateObjects, "direct.proto").File[0].GetContent()
	for _, want := range []string{"func (c TestObjectsClient) Unary(", "func (c OddObjectsClient) Vt(", "DirectUnary(Odd_Nothing_FullMethodName, objects.Nothing)", "func (c TestObjectsClient) Bidi("} {
		if !strings.Contains(content, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(content, "ObjectsClient) Nothing(") {
		t.Error("a method has objects of a file that gets none")
	}
}
