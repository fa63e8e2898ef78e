package main

import (
	"strconv"

	"google.golang.org/protobuf/compiler/protogen"
)

// server writes the interface that services implement, and how they are registered.
func (g *generator) server(service *protogen.Service) {
	name := service.GoName + "Server"
	unimplemented := "Unimplemented" + name
	g.comment(name+" is what implements service "+service.GoName+".", service.Comments, serviceDeprecated(service))
	if g.embedded {
		g.P("//")
		g.P("// An implementation embeds ", unimplemented, ", so that methods may be added to the service.")
	}
	g.P("type ", name, " interface {")
	for _, method := range service.Methods {
		g.comment("", method.Comments, methodDeprecated(method))
		g.P(g.serverSignature(method))
	}
	if g.embedded {
		g.P("mustEmbed", unimplemented, "()")
	}
	g.P("}")
	g.P()
	g.P("// ", unimplemented, " answers UNIMPLEMENTED. Embed it by value: methods of a nil pointer would panic.")
	g.P("type ", unimplemented, " struct{}")
	g.P()
	for _, method := range service.Methods {
		g.P("func (", unimplemented, ") ", g.serverSignature(method), " {")
		failure := g.QualifiedGoIdent(statusPackage.Ident("Error")) + "(" + g.QualifiedGoIdent(codesPackage.Ident("Unimplemented")) + ", " +
			strconv.Quote("method "+method.GoName+" not implemented") + ")"
		if isUnary(method) {
			failure = "nil, " + failure
		}
		g.P("return ", failure)
		g.P("}")
	}
	if g.embedded {
		g.P("func (", unimplemented, ") mustEmbed", unimplemented, "() {}")
	}
	g.P("func (", unimplemented, ") testEmbeddedByValue() {}")
	g.P()
	g.P("// Unsafe", name, " may be embedded instead: a program does not compile then when methods are added to the service.")
	g.P("type Unsafe", name, " interface {")
	g.P("mustEmbed", unimplemented, "()")
	g.P("}")
	g.P()
	if serviceDeprecated(service) {
		g.P(deprecated)
	}
	g.P("func Register", name, "(s ", grpcPackage.Ident("ServiceRegistrar"), ", srv ", name, ") {")
	g.P("// It panics where ", unimplemented, " is embedded by a nil pointer, rather than at the first call.")
	g.P("if t, ok := srv.(interface { testEmbeddedByValue() }); ok {")
	g.P("t.testEmbeddedByValue()")
	g.P("}")
	g.P(tollfreePackage.Ident("RegisterDirect"), "(s, &", descriptionName(service), ", srv,")
	for _, method := range service.Methods {
		if isUnary(method) {
			g.P(tollfreePackage.Ident("DirectUnary"), "(", pathName(method), ", srv.", method.GoName, "),")
		}
	}
	g.P(")")
	g.P("}")
	g.P()
}

func (g *generator) serverSignature(method *protogen.Method) string {
	in := "*" + g.QualifiedGoIdent(method.Input.GoIdent)
	if isUnary(method) {
		return method.GoName + "(" + g.QualifiedGoIdent(contextPackage.Ident("Context")) + ", " + in + ") (*" +
			g.QualifiedGoIdent(method.Output.GoIdent) + ", error)"
	}
	parameters := g.streamType(method, "Server")
	if !method.Desc.IsStreamingClient() {
		parameters = in + ", " + parameters
	}
	return method.GoName + "(" + parameters + ") error"
}

func handlerName(method *protogen.Method) string {
	return "_" + method.Parent.GoName + "_" + method.GoName + "_Handler"
}

// handlers writes how servers call a service, as package grpc has it.
func (g *generator) handlers(service *protogen.Service) {
	for _, method := range service.Methods {
		if isUnary(method) {
			g.unaryHandler(service, method)
		} else {
			g.streamHandler(service, method)
		}
	}
}

func (g *generator) unaryHandler(service *protogen.Service, method *protogen.Method) {
	server := service.GoName + "Server"
	ctx := g.QualifiedGoIdent(contextPackage.Ident("Context"))
	g.P("func ", handlerName(method), "(srv any, ctx ", ctx, ", dec func(any) error, interceptor ", grpcPackage.Ident("UnaryServerInterceptor"), ") (any, error) {")
	g.P("in := new(", method.Input.GoIdent, ")")
	g.P("if err := dec(in); err != nil {")
	g.P("return nil, err")
	g.P("}")
	g.P("if interceptor == nil {")
	g.P("return srv.(", server, ").", method.GoName, "(ctx, in)")
	g.P("}")
	g.P("info := &", grpcPackage.Ident("UnaryServerInfo"), "{Server: srv, FullMethod: ", pathName(method), "}")
	g.P("return interceptor(ctx, in, info, func(ctx ", ctx, ", req any) (any, error) {")
	g.P("return srv.(", server, ").", method.GoName, "(ctx, req.(*", method.Input.GoIdent, "))")
	g.P("})")
	g.P("}")
	g.P()
}

func (g *generator) streamHandler(service *protogen.Service, method *protogen.Method) {
	server := service.GoName + "Server"
	stream := "&" + g.genericStream(method, "Server") + "{ServerStream: stream}"
	g.P("func ", handlerName(method), "(srv any, stream ", grpcPackage.Ident("ServerStream"), ") error {")
	if method.Desc.IsStreamingClient() {
		g.P("return srv.(", server, ").", method.GoName, "(", stream, ")")
	} else {
		g.P("in := new(", method.Input.GoIdent, ")")
		g.P("if err := stream.RecvMsg(in); err != nil {")
		g.P("return err")
		g.P("}")
		g.P("return srv.(", server, ").", method.GoName, "(in, ", stream, ")")
	}
	g.P("}")
	g.P()
	g.streamAlias(method, "Server")
}
