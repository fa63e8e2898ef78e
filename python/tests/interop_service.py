"""gRPC's interoperability test service (`grpc/testing/test.proto`)."""

import time

import grpc
from grpc.testing import empty_pb2, messages_pb2, test_pb2_grpc

_INITIAL, _TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"


def _reflect(context):
    for name, value in context.invocation_metadata():
        if name == _INITIAL:
            context.send_initial_metadata(((name, value),))
        elif name == _TRAILING:
            context.set_trailing_metadata(((name, value),))


def _check(request, context):
    if request.HasField("response_status") and request.response_status.code:
        code = {each.value[0]: each for each in grpc.StatusCode}[request.response_status.code]
        context.abort(code, request.response_status.message)


class TestService(test_pb2_grpc.TestServiceServicer):
    def EmptyCall(self, request, context):
        _reflect(context)
        return empty_pb2.Empty()

    def UnaryCall(self, request, context):
        _reflect(context)
        _check(request, context)
        if request.expect_compressed.value and ("grpc-encoding", "gzip") not in context._pairs():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request was to be compressed")
        if request.response_compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        return messages_pb2.SimpleResponse(payload=messages_pb2.Payload(body=bytes(request.response_size)))

    def StreamingOutputCall(self, request, context):
        _check(request, context)
        for parameters in request.response_parameters:
            if parameters.compressed.value:
                context.set_compression(grpc.Compression.Gzip) if not context._are_headers_sent else None
            elif context._compression is not None:
                context.disable_next_message_compression()
            if parameters.interval_us:
                time.sleep(parameters.interval_us / 1e6)
            yield messages_pb2.StreamingOutputCallResponse(payload=messages_pb2.Payload(body=bytes(parameters.size)))

    def StreamingInputCall(self, requests, context):
        total = sum(len(request.payload.body) for request in requests)
        return messages_pb2.StreamingInputCallResponse(aggregated_payload_size=total)

    def FullDuplexCall(self, requests, context):
        _reflect(context)
        for request in requests:
            _check(request, context)
            for parameters in request.response_parameters:
                if parameters.interval_us:
                    time.sleep(parameters.interval_us / 1e6)
                yield messages_pb2.StreamingOutputCallResponse(payload=messages_pb2.Payload(body=bytes(parameters.size)))

    def HalfDuplexCall(self, requests, context):
        for request in list(requests):
            for parameters in request.response_parameters:
                yield messages_pb2.StreamingOutputCallResponse(payload=messages_pb2.Payload(body=bytes(parameters.size)))
