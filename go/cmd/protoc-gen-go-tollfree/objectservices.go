package main

import (
	"strconv"

	"google.golang.org/protobuf/compiler/protogen"
)

// service writes a client and a server whose methods take and give objects. Methods with messages that have no readers remain as they are.
func (g *objects) service(service *protogen.Service) {
	var methods []*protogen.Method
	for _, method := range service.Methods {
		if g.hasObjects(method) {
			methods = append(methods, method)
		}
	}
	if len(methods) == 0 {
		return
	}
	g.P("var (")
	for _, m := range methods {
		g.P(objectMethod(m), " = ", tollfreePackage.Ident("NewObjectMethod"), "(", pathName(m), ", ", g.typeOf(m.Input), ", ", g.typeOf(m.Output), ")")
	}
	g.P(")")
	g.P()
	g.objectClient(service, methods)
	g.objectServer(service)
	g.objectAdapter(service)
}

// hasObjects says whether a method takes and gives objects.
func (g *objects) hasObjects(m *protogen.Method) bool {
	return g.hasReader(m.Input) && g.hasReader(m.Output)
}

func objectMethod(m *protogen.Method) string { return "objects_" + m.Parent.GoName + "_" + m.GoName }

// streamOf is the type of a stream of objects at one side, "Client" or "Server".
func (g *objects) streamOf(m *protogen.Method, side string) string {
	in, out := g.named(m.Input, "Object"), g.named(m.Output, "Object")
	kind, types := "BidiStreaming", in+", "+out
	switch {
	case !m.Desc.IsStreamingServer():
		kind = "ClientStreaming"
	case !m.Desc.IsStreamingClient():
		kind, types = "ServerStreaming", out
	}
	return g.QualifiedGoIdent(tollfreePackage.Ident("Object"+kind+side)) + "[" + types + "]"
}

// nilOf is what says of which type a message is.
func (g *objects) nilOf(m *protogen.Message) string {
	return "(*" + g.QualifiedGoIdent(m.GoIdent) + ")(nil)"
}

func (g *objects) objectClient(service *protogen.Service, methods []*protogen.Method) {
	client := service.GoName + "ObjectsClient"
	context, option := g.QualifiedGoIdent(contextPackage.Ident("Context")), g.QualifiedGoIdent(grpcPackage.Ident("CallOption"))
	g.P("// ", client, " calls service ", service.GoName, " with objects. A server that takes none gets encoded messages.")
	g.P("type ", client, " struct{ conn ", tollfreePackage.Ident("DirectConn"), " }")
	g.P()
	g.P("func New", client, "(cc ", grpcPackage.Ident("ClientConnInterface"), ") ", client, " {")
	g.P("return ", client, "{", tollfreePackage.Ident("Direct"), "(cc)}")
	g.P("}")
	g.P()
	for _, m := range methods {
		in, out := g.named(m.Input, "Object"), g.named(m.Output, "Object")
		head := "func (c " + client + ") " + m.GoName + "(ctx " + context
		if !m.Desc.IsStreamingClient() {
			head += ", in " + in
		}
		head += ", opts ..." + option + ") ("
		if isUnary(m) {
			g.P(head, out, ", error) {")
			g.P("out, err := c.conn.InvokeObject(ctx, ", objectMethod(m), ", in.Flat(), new(", m.Input.GoIdent, "), new(", m.Output.GoIdent, "), opts...)")
			g.P("if err != nil {")
			g.P("return ", out, "{}, err")
			g.P("}")
			g.P("return ", g.named(m.Output, "ObjectOf"), "(out), nil")
			g.P("}")
			g.P()
			continue
		}
		g.P(head, g.streamOf(m, "Client"), ", error) {")
		g.P("stream, err := ", tollfreePackage.Ident("NewObjectStream"), "[", in, "](ctx, c.conn, &", descriptionName(service), ".Streams[", streamIndex(m), "], ",
			objectMethod(m), ", ", g.nilOf(m.Input), ", ", g.nilOf(m.Output), ", ", g.named(m.Output, "ObjectOf"), ", opts...)")
		if !m.Desc.IsStreamingClient() {
			g.P("if err == nil {")
			g.P("err = stream.SendOnly(in)")
			g.P("}")
		}
		g.P("if err != nil {")
		g.P("return nil, err")
		g.P("}")
		g.P("return stream, nil")
		g.P("}")
		g.P()
	}
}

// streamIndex is a method's place among those with streams.
func streamIndex(of *protogen.Method) string {
	at := 0
	for _, m := range of.Parent.Methods {
		if m == of {
			break
		}
		if !isUnary(m) {
			at++
		}
	}
	return strconv.Itoa(at)
}

// signature is that of a method of a server of objects.
func (g *objects) signature(m *protogen.Method) string {
	if !g.hasObjects(m) {
		return (&generator{g.GeneratedFile, false}).serverSignature(m)
	}
	in := g.named(m.Input, "Object")
	switch {
	case isUnary(m):
		return m.GoName + "(" + g.QualifiedGoIdent(contextPackage.Ident("Context")) + ", " + in + ") (" + g.named(m.Output, "Object") + ", error)"
	case m.Desc.IsStreamingClient():
		return m.GoName + "(" + g.streamOf(m, "Server") + ") error"
	}
	return m.GoName + "(" + in + ", " + g.streamOf(m, "Server") + ") error"
}

func (g *objects) objectServer(service *protogen.Service) {
	server := service.GoName + "ObjectsServer"
	g.P("// ", server, " is what serves service ", service.GoName, " with objects. An implementation may embed Unimplemented", server, ", so that methods may be added to the service.")
	g.P("type ", server, " interface {")
	for _, m := range service.Methods {
		g.P(g.signature(m))
	}
	g.P("}")
	g.P()
	g.P("// Unimplemented", server, " answers UNIMPLEMENTED.")
	g.P("type Unimplemented", server, " struct{}")
	g.P()
	for _, m := range service.Methods {
		failure := g.QualifiedGoIdent(statusPackage.Ident("Error")) + "(" + g.QualifiedGoIdent(codesPackage.Ident("Unimplemented")) + ", " +
			strconv.Quote("method "+m.GoName+" not implemented") + ")"
		g.P("func (Unimplemented", server, ") ", g.signature(m), " {")
		switch {
		case !isUnary(m):
			g.P("return ", failure)
		case g.hasObjects(m):
			g.P("return ", g.named(m.Output, "Object"), "{}, ", failure)
		default:
			g.P("return nil, ", failure)
		}
		g.P("}")
	}
	g.P()
}

// objectAdapter writes what serves by objects the calls of clients that know none, and how both are registered.
func (g *objects) objectAdapter(service *protogen.Service) {
	name, adapter := service.GoName, "objects"+service.GoName+"Server"
	context := g.QualifiedGoIdent(contextPackage.Ident("Context"))
	g.P("// ", adapter, " serves clients that know no objects, too.")
	g.P("type ", adapter, " struct {")
	g.P("Unimplemented", name, "Server")
	g.P("objects ", name, "ObjectsServer")
	g.P("}")
	g.P()
	messages := &generator{g.GeneratedFile, false}
	for _, m := range service.Methods {
		in, out := g.named(m.Input, "Object"), g.named(m.Output, "Object")
		switch {
		case !g.hasObjects(m) && isUnary(m):
			g.P("func (s ", adapter, ") ", m.GoName, "(ctx ", context, ", in *", m.Input.GoIdent, ") (*", m.Output.GoIdent, ", error) {")
			g.P("return s.objects.", m.GoName, "(ctx, in)")
			g.P("}")
		case !g.hasObjects(m) && m.Desc.IsStreamingClient():
			g.P("func (s ", adapter, ") ", m.GoName, "(stream ", messages.streamType(m, "Server"), ") error {")
			g.P("return s.objects.", m.GoName, "(stream)")
			g.P("}")
		case !g.hasObjects(m):
			g.P("func (s ", adapter, ") ", m.GoName, "(in *", m.Input.GoIdent, ", stream ", messages.streamType(m, "Server"), ") error {")
			g.P("return s.objects.", m.GoName, "(in, stream)")
			g.P("}")
		case isUnary(m):
			g.P("func (s ", adapter, ") flat", m.GoName, "(ctx ", context, ", in ", g.flat("Object"), ") (", g.flat("Object"), ", error) {")
			g.P("out, err := s.objects.", m.GoName, "(ctx, ", g.named(m.Input, "ObjectOf"), "(in))")
			g.P("return out.Flat(), err")
			g.P("}")
			g.P()
			g.P("func (s ", adapter, ") ", m.GoName, "(ctx ", context, ", in *", m.Input.GoIdent, ") (*", m.Output.GoIdent, ", error) {")
			g.P("out := new(", m.Output.GoIdent, ")")
			g.P("if err := ", tollfreePackage.Ident("ObjectHandler"), "(ctx, ", objectMethod(m), ", in, out, s.flat", m.GoName, "); err != nil {")
			g.P("return nil, err")
			g.P("}")
			g.P("return out, nil")
			g.P("}")
		default:
			g.P("func (s ", adapter, ") flat", m.GoName, "(stream ", tollfreePackage.Ident("ObjectStream"), ") error {")
			g.P("x := ", tollfreePackage.Ident("NewObjectServerStream"), "[", in, ", ", out, "](stream, ", objectMethod(m), ", ", g.named(m.Input, "ObjectOf"), ")")
			if m.Desc.IsStreamingClient() {
				g.P("return s.objects.", m.GoName, "(x)")
			} else {
				g.P("in, err := x.Recv()")
				g.P("if err != nil {")
				g.P("return err")
				g.P("}")
				g.P("return s.objects.", m.GoName, "(in, x)")
			}
			g.P("}")
			g.P()
			converted := g.QualifiedGoIdent(tollfreePackage.Ident("ConvertedStream")) + "(stream, " + g.nilOf(m.Input) + ", " + g.nilOf(m.Output) + ")"
			if m.Desc.IsStreamingClient() {
				g.P("func (s ", adapter, ") ", m.GoName, "(stream ", messages.streamType(m, "Server"), ") error {")
				g.P("return s.flat", m.GoName, "(", converted, ")")
			} else {
				g.P("func (s ", adapter, ") ", m.GoName, "(in *", m.Input.GoIdent, ", stream ", messages.streamType(m, "Server"), ") error {")
				g.P("o, err := ", tollfreePackage.Ident("ObjectOf"), "(", objectMethod(m), ", in)")
				g.P("if err != nil {")
				g.P("return err")
				g.P("}")
				g.P("x := ", tollfreePackage.Ident("NewObjectServerStream"), "[", in, ", ", out, "](", converted, ", ", objectMethod(m), ", ", g.named(m.Input, "ObjectOf"), ")")
				g.P("return s.objects.", m.GoName, "(", g.named(m.Input, "ObjectOf"), "(o), x)")
			}
			g.P("}")
		}
		g.P()
	}
	g.P("// Register", name, "ObjectsServer registers the service.")
	g.P("func Register", name, "ObjectsServer(s ", grpcPackage.Ident("ServiceRegistrar"), ", objects ", name, "ObjectsServer) {")
	g.P("a := ", adapter, "{objects: objects}")
	g.P(tollfreePackage.Ident("RegisterDirect"), "(s, &", descriptionName(service), ", a,")
	for _, m := range service.Methods {
		switch {
		case g.hasObjects(m) && isUnary(m):
			g.P(tollfreePackage.Ident("DirectObjects"), "(", objectMethod(m), ", a.flat", m.GoName, "),")
		case g.hasObjects(m):
			g.P(tollfreePackage.Ident("DirectObjectStream"), "(", objectMethod(m), ", a.flat", m.GoName, "),")
		case isUnary(m):
			g.P(tollfreePackage.Ident("DirectUnary"), "(", pathName(m), ", objects.", m.GoName, "),")
		}
	}
	g.P(")")
	g.P("}")
	g.P()
}

// typeOf is a message's type. One of another package is looked up in this file's table, which has all types that are imported.
func (g *objects) typeOf(m *protogen.Message) string {
	return g.table + ".MustType(" + strconv.Quote(string(m.Desc.FullName())) + ")"
}
