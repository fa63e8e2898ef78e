"""OpenTelemetry's instrumentation of grpcio, as it is: one trace through client and server."""

import pytest
from support import Pair, message

pytest.importorskip("opentelemetry.instrumentation.grpc")


def test_one_trace_goes_through_both_ends(tmp_path):
    import echo_pb2_grpc
    import grpc
    from opentelemetry.instrumentation.grpc import client_interceptor, server_interceptor
    from opentelemetry.instrumentation.grpc.grpcext import intercept_channel
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    both = Pair(tmp_path, interceptors=[server_interceptor(tracer_provider=provider)])
    stub = echo_pb2_grpc.EchoStub(intercept_channel(both.channel, client_interceptor(tracer_provider=provider)))
    assert stub.Unary(message("traced")).text == "traced"
    with pytest.raises(grpc.RpcError):
        stub.Unary(message("fail"))
    assert len(list(stub.Download(message(count=3)))) == 3
    both.close()
    spans = exporter.get_finished_spans()
    kinds = [(span.name, span.kind.name) for span in spans]
    for name in ("Unary", "Unary", "Download"):
        assert (f"/tollfree.test.Echo/{name}", "CLIENT") in kinds and (f"/tollfree.test.Echo/{name}", "SERVER") in kinds
    by_trace = {}
    for span in spans:
        by_trace.setdefault(span.context.trace_id, []).append(span)
    assert len(by_trace) == 3 and all(len(of) == 2 for of in by_trace.values())
    for of in by_trace.values():
        (server,) = [span for span in of if span.kind.name == "SERVER"]
        (client,) = [span for span in of if span.kind.name == "CLIENT"]
        assert server.parent.span_id == client.context.span_id
