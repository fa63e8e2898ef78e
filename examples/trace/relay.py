"""The service in Python: passes calls on to another server, with one trace through all.

relay.py ADDRESS [NEXT ADDRESS]

It serves until its input ends. Spans go to OTEL_EXPORTER_OTLP_ENDPOINT. The stubs are those of grpc_tools.
"""

import os
import pathlib
import sys
import tempfile
from concurrent import futures

import grpc_tools.protoc
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.grpc import client_interceptor, server_interceptor
from opentelemetry.instrumentation.grpc.grpcext import intercept_channel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import tollfree

PROTOS = pathlib.Path(__file__).parents[2] / "tests" / "stubs" / "proto"

with tempfile.TemporaryDirectory(prefix="tollfree-relay-") as generated:
    if grpc_tools.protoc.main(["protoc", f"-I{PROTOS}", f"--python_out={generated}", f"--grpc_python_out={generated}", "relay.proto"]) != 0:
        raise SystemExit("relay.py: protoc failed")
    sys.path.insert(0, generated)
    import relay_pb2
    import relay_pb2_grpc

    sys.path.remove(generated)


class Relay(relay_pb2_grpc.RelayServicer):
    def __init__(self, following):
        self.following = following

    def Pass(self, request, context):
        reply = self.following.Pass(request) if self.following else relay_pb2.PassReply()
        reply.passed.insert(0, f"{os.environ.get('OTEL_SERVICE_NAME', 'relay')}, process {os.getpid()}")
        return reply


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit("relay.py: an address is needed, and that of the next server may follow")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    channel = following = None
    if len(sys.argv) == 3:
        channel = tollfree.insecure_channel(sys.argv[2])
        following = relay_pb2_grpc.RelayStub(intercept_channel(channel, client_interceptor()))
    server = tollfree.server(futures.ThreadPoolExecutor(4), interceptors=[server_interceptor()])
    relay_pb2_grpc.add_RelayServicer_to_server(Relay(following), server)
    server.add_insecure_port(sys.argv[1])
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(5).wait()
    if channel:
        channel.close()
    provider.shutdown()


if __name__ == "__main__":
    main()
