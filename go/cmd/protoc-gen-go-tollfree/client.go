package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
)

// client writes a service's client: its interface, and the type behind it.
func (g *generator) client(service *protogen.Service) {
	name := service.GoName + "Client"
	hidden := strings.ToLower(name[:1]) + name[1:]
	connection := g.QualifiedGoIdent(grpcPackage.Ident("ClientConnInterface"))
	g.comment(name+" calls service "+service.GoName+".", service.Comments, serviceDeprecated(service))
	g.P("type ", name, " interface {")
	for _, method := range service.Methods {
		g.comment("", method.Comments, methodDeprecated(method))
		g.P(g.clientSignature(method))
	}
	g.P("}")
	g.P()
	g.P("type ", hidden, " struct {")
	g.P("conn ", tollfreePackage.Ident("DirectConn"))
	g.P("}")
	g.P()
	if serviceDeprecated(service) {
		g.P(deprecated)
	}
	g.P("func New", name, "(cc ", connection, ") ", name, " {")
	g.P("return &", hidden, "{", tollfreePackage.Ident("Direct"), "(cc)}")
	g.P("}")
	g.P()
	streams := 0
	for _, method := range service.Methods {
		if methodDeprecated(method) {
			g.P(deprecated)
		}
		g.P("func (c *", hidden, ") ", g.clientSignature(method), " {")
		if isUnary(method) {
			g.clientCall(method)
			continue
		}
		g.clientStream(service, method, streams)
		streams++
	}
}

func (g *generator) clientSignature(method *protogen.Method) string {
	parameters := "ctx " + g.QualifiedGoIdent(contextPackage.Ident("Context"))
	if !method.Desc.IsStreamingClient() {
		parameters += ", in *" + g.QualifiedGoIdent(method.Input.GoIdent)
	}
	result := "*" + g.QualifiedGoIdent(method.Output.GoIdent)
	if !isUnary(method) {
		result = g.streamType(method, "Client")
	}
	return fmt.Sprintf("%s(%s, opts ...%s) (%s, error)", method.GoName, parameters, g.QualifiedGoIdent(grpcPackage.Ident("CallOption")), result)
}

func (g *generator) clientCall(method *protogen.Method) {
	g.P("out := new(", method.Output.GoIdent, ")")
	g.P("if err := c.conn.Invoke(ctx, ", pathName(method), ", in, out, opts...); err != nil {")
	g.P("return nil, err")
	g.P("}")
	g.P("return out, nil")
	g.P("}")
	g.P()
}

func (g *generator) clientStream(service *protogen.Service, method *protogen.Method, index int) {
	g.P("stream, err := c.conn.NewStream(ctx, &", descriptionName(service), ".Streams[", index, "], ", pathName(method), ", opts...)")
	g.P("if err != nil {")
	g.P("return nil, err")
	g.P("}")
	g.P("x := &", g.genericStream(method, "Client"), "{ClientStream: stream}")
	if !method.Desc.IsStreamingClient() {
		g.P("if err := x.ClientStream.SendMsg(in); err != nil {")
		g.P("return nil, err")
		g.P("}")
		g.P("if err := x.ClientStream.CloseSend(); err != nil {")
		g.P("return nil, err")
		g.P("}")
	}
	g.P("return x, nil")
	g.P("}")
	g.P()
	g.streamAlias(method, "Client")
}
