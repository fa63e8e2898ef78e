// Command protoc-gen-go-tollfree is a plugin of protoc and buf that generates services' clients and servers for package tollfree.
//
// They have the names of protoc-gen-go-grpc's, and take its place: the messages are protoc-gen-go's. A connection or server of package
// tollfree passes over grpc's call options and codec where a call needs neither; any other gets calls as from the code of
// protoc-gen-go-grpc.
//
//	protoc --go_out=. --go-tollfree_out=. greeter.proto
package main

import (
	"flag"
	"fmt"
	"os"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "protoc-gen-go-tollfree is started by protoc or buf: protoc --go_out=. --go-tollfree_out=. your.proto")
		os.Exit(2)
	}
	var flags flag.FlagSet
	embedded := flags.Bool("require_unimplemented_servers", true, "whether services must embed the Unimplemented type, as of protoc-gen-go-grpc")
	objects := flags.Bool("objects", false, "whether to generate readers and builders of flat messages, and services' clients and servers that use them")
	protogen.Options{ParamFunc: flags.Set}.Run(func(plugin *protogen.Plugin) error {
		generate(plugin, *embedded)
		if *objects {
			return generateObjects(plugin)
		}
		return nil
	})
}

// generate adds a file to the answer for each file with services that the request is for.
func generate(plugin *protogen.Plugin, embedded bool) {
	plugin.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL | pluginpb.CodeGeneratorResponse_FEATURE_SUPPORTS_EDITIONS)
	plugin.SupportedEditionsMinimum, plugin.SupportedEditionsMaximum = descriptorpb.Edition_EDITION_PROTO2, descriptorpb.Edition_EDITION_2024
	for _, file := range plugin.Files {
		if !file.Generate || len(file.Services) == 0 {
			continue
		}
		g := &generator{plugin.NewGeneratedFile(file.GeneratedFilenamePrefix+"_tollfree.pb.go", file.GoImportPath), embedded}
		g.file(file)
	}
}
