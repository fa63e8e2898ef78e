package outside

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/bojand/ghz/runner"
	"github.com/fullstorydev/grpcurl"
	"github.com/jhump/protoreflect/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// TestGrpcurlThroughSharedMemory lists, describes and calls with grpcurl's library over a connection of ours, which knows nothing of the
// services but what reflection says.
func TestGrpcurlThroughSharedMemory(t *testing.T) {
	memory, _ := serve(t)
	rustMemory, _ := rust(t)
	for name, conn := range map[string]grpc.ClientConnInterface{"Go": over(t, memory), "Rust": over(t, rustMemory), "gateway": plain(t, gateway(t))} {
		t.Run(name, func(t *testing.T) {
			reflected := grpcreflect.NewClientAuto(within(t), conn)
			defer reflected.Reset()
			source := grpcurl.DescriptorSourceFromServer(within(t), reflected)
			services, err := source.ListServices()
			wantNoError(t, err)
			if !slices.Contains(services, "grpc.testing.TestService") {
				t.Errorf("services are %v", services)
			}
			for _, call := range []struct {
				method, request string
				code            codes.Code
				reply           string
			}{
				{"grpc.testing.TestService/EmptyCall", "", codes.OK, "{}"},
				{"grpc.testing.TestService/UnaryCall", `{"response_size": 3}`, codes.OK, `"body": "AAAA"`},
				{"grpc.testing.TestService/UnaryCall", `{"response_status": {"code": 5, "message": "gone"}}`, codes.NotFound, ""},
				{"grpc.testing.TestService/StreamingOutputCall", `{"response_parameters": [{"size": 1}, {"size": 2}]}`, codes.OK, `"body": "AAA="`},
				{"grpc.testing.TestService/FullDuplexCall", `{"response_parameters": [{"size": 1}]} {"response_parameters": [{"size": 2}]}`, codes.OK, `"body": "AAA="`},
			} {
				parser, formatter, err := grpcurl.RequestParserAndFormatter(grpcurl.FormatJSON, source, strings.NewReader(call.request), grpcurl.FormatOptions{})
				wantNoError(t, err)
				var out bytes.Buffer
				handler := &grpcurl.DefaultEventHandler{Out: &out, Formatter: formatter}
				wantNoError(t, grpcurl.InvokeRPC(within(t), source, conn, call.method, []string{"x-own: value"}, handler, parser.Next))
				if handler.Status.Code() != call.code || !strings.Contains(out.String(), call.reply) {
					t.Errorf("%s %s: %v, %s", call.method, call.request, handler.Status, out.String())
				}
			}
		})
	}
}

// TestGhzAtBothSides has ghz load a Go program over TCP, and a Go server behind a gateway.
func TestGhzAtBothSides(t *testing.T) {
	_, tcp := serve(t)
	for name, address := range map[string]string{"TCP": tcp, "gateway": gateway(t)} {
		t.Run(name, func(t *testing.T) {
			for method, request := range map[string]string{
				"grpc.testing.TestService.UnaryCall":      `{"response_size": 64}`,
				"grpc.testing.TestService.FullDuplexCall": `[{"response_parameters": [{"size": 10}]}, {"response_parameters": [{"size": 20}]}]`,
			} {
				report, err := runner.Run(method, address, runner.WithInsecure(true), runner.WithTotalRequests(1000), runner.WithConcurrency(20),
					runner.WithConnections(4), runner.WithDataFromJSON(request))
				wantNoError(t, err)
				if report.Count != 1000 || report.StatusCodeDist["OK"] != 1000 {
					t.Errorf("%s: %d calls, %v", method, report.Count, report.StatusCodeDist)
				}
			}
		})
	}
}
