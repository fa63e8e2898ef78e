"""gRPC's interoperability cases between asyncio's ends and the Rust implementation, and the hostile peers of its list."""

import asyncio
import os
import pathlib
import subprocess
import tempfile

import conftest
import grpc
import pytest

import tollfree.aio

INTEROP = os.environ.get("TOLLFREE_INTEROP")
HOSTILE = os.environ.get("TOLLFREE_HOSTILE")
needs_reference = pytest.mark.skipif(INTEROP is None, reason="TOLLFREE_INTEROP names no reference; `make python` builds one")
needs_hostile = pytest.mark.skipif(HOSTILE is None, reason="TOLLFREE_HOSTILE names no hostile peer; `make python` builds one")

conftest.generate(pathlib.Path(__file__).parents[2] / "tests/interop/proto", "grpc/testing/*.proto")

from grpc.testing import empty_pb2, messages_pb2, test_pb2_grpc  # noqa: E402

INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"


async def reflect(context):
    for name, value in context.invocation_metadata():
        if name == INITIAL:
            await context.send_initial_metadata(((name, value),))
        elif name == TRAILING:
            context.set_trailing_metadata(((name, value),))


async def check(request, context):
    if request.HasField("response_status") and request.response_status.code:
        code = {each.value[0]: each for each in grpc.StatusCode}[request.response_status.code]
        await context.abort(code, request.response_status.message)


def answer(size):
    return messages_pb2.StreamingOutputCallResponse(payload=messages_pb2.Payload(body=bytes(size)))


class Service(test_pb2_grpc.TestServiceServicer):
    """gRPC's interoperability test service (`grpc/testing/test.proto`)."""

    async def EmptyCall(self, request, context):
        await reflect(context)
        return empty_pb2.Empty()

    async def UnaryCall(self, request, context):
        await reflect(context)
        await check(request, context)
        if request.expect_compressed.value and ("grpc-encoding", "gzip") not in context.pairs():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request was to be compressed")
        if request.response_compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        return messages_pb2.SimpleResponse(payload=messages_pb2.Payload(body=bytes(request.response_size)))

    async def StreamingOutputCall(self, request, context):
        await check(request, context)
        if any(parameters.compressed.value for parameters in request.response_parameters):
            context.set_compression(grpc.Compression.Gzip)
        for parameters in request.response_parameters:
            if not parameters.compressed.value:
                context.disable_next_message_compression()
            await asyncio.sleep(parameters.interval_us / 1e6)
            yield answer(parameters.size)

    async def StreamingInputCall(self, request_iterator, context):
        total = 0
        async for request in request_iterator:
            total += len(request.payload.body)
        return messages_pb2.StreamingInputCallResponse(aggregated_payload_size=total)

    async def FullDuplexCall(self, request_iterator, context):
        await reflect(context)
        async for request in request_iterator:
            await check(request, context)
            for parameters in request.response_parameters:
                await asyncio.sleep(parameters.interval_us / 1e6)
                yield answer(parameters.size)

    async def HalfDuplexCall(self, request_iterator, context):
        for request in [each async for each in request_iterator]:
            for parameters in request.response_parameters:
                yield answer(parameters.size)


@needs_reference
def test_a_rust_client_passes_every_case():
    # A handler can't tell which message of a stream was compressed, and grpcio has no load reports.
    absent = ["client_compressed_streaming", "pick_first_unary", "orca_per_rpc", "orca_oob"]
    skipped = [word for case in absent for word in ("--except", case)]

    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            address = f"shm://{directory}/python.sock"
            server = tollfree.aio.server()
            test_pb2_grpc.add_TestServiceServicer_to_server(Service(), server)
            server.add_insecure_port(address)
            await server.start()
            ran = await asyncio.create_subprocess_exec(INTEROP, "call", address, *skipped, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said, _ = await ran.communicate()
            await server.stop(None)
            assert ran.returncode == 0 and b"large_unary" in said, said.decode()

    asyncio.run(scenario())


@needs_reference
def test_the_cases_at_a_rust_server():
    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            address = f"shm://{directory}/rust.sock"
            with subprocess.Popen([INTEROP, "serve", address], stdin=subprocess.PIPE) as reference:
                async with tollfree.aio.insecure_channel(address) as channel:
                    await cases(channel)
                reference.stdin.close()

    asyncio.run(scenario())


def payload(size):
    return messages_pb2.Payload(body=bytes(size))


async def fails(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def cases(channel):
    stub, request = test_pb2_grpc.TestServiceStub(channel), messages_pb2.SimpleRequest
    # empty_unary, large_unary
    assert await stub.EmptyCall(empty_pb2.Empty(), wait_for_ready=True) == empty_pb2.Empty()
    large = await stub.UnaryCall(request(response_size=314159, payload=payload(271828)))
    assert len(large.payload.body) == 314159
    # client_compressed_unary, server_compressed_unary
    probe = request(response_size=314159, payload=payload(271828), expect_compressed=messages_pb2.BoolValue(value=True))
    assert (await fails(stub.UnaryCall(probe))).code() is grpc.StatusCode.INVALID_ARGUMENT
    probe.response_compressed.value = True
    accepts = (("grpc-accept-encoding", "identity,gzip"),)
    compressed = await stub.UnaryCall(probe, compression=grpc.Compression.Gzip, metadata=accepts)
    assert len(compressed.payload.body) == 314159
    # client_streaming, server_streaming
    sizes, wanted = [27182, 8, 1828, 45904], [31415, 9, 2653, 58979]
    uploads = [messages_pb2.StreamingInputCallRequest(payload=payload(size)) for size in sizes]
    assert (await stub.StreamingInputCall(uploads)).aggregated_payload_size == sum(sizes)
    parameters = [messages_pb2.ResponseParameters(size=size) for size in wanted]
    downloads = stub.StreamingOutputCall(messages_pb2.StreamingOutputCallRequest(response_parameters=parameters))
    assert [len(each.payload.body) async for each in downloads] == wanted
    # ping_pong, empty_stream
    call = stub.FullDuplexCall()
    for size, of in zip(wanted, sizes, strict=True):
        asked = [messages_pb2.ResponseParameters(size=size)]
        await call.write(messages_pb2.StreamingOutputCallRequest(response_parameters=asked, payload=payload(of)))
        assert len((await call.read()).payload.body) == size
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert [each async for each in stub.FullDuplexCall([])] == []
    # cancel_after_begin, cancel_after_first_response
    upload = stub.StreamingInputCall()
    upload.cancel()
    assert await upload.code() is grpc.StatusCode.CANCELLED
    call = stub.FullDuplexCall()
    await call.write(messages_pb2.StreamingOutputCallRequest(response_parameters=parameters[:1]))
    await call.read()
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED
    # timeout_on_sleeping_server
    slow = messages_pb2.ResponseParameters(size=1, interval_us=500_000)
    call = stub.FullDuplexCall(timeout=0.02)
    await call.write(messages_pb2.StreamingOutputCallRequest(response_parameters=[slow]))
    assert (await fails(call.read())).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # custom_metadata
    sent = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab"))
    call = stub.UnaryCall(request(response_size=1), metadata=sent)
    await call
    assert sent[0] in tuple(await call.initial_metadata()) and sent[1] in tuple(await call.trailing_metadata())
    # status_code_and_message, special_status_message
    for text in ("test status message", "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"):
        error = await fails(stub.UnaryCall(request(response_status=messages_pb2.EchoStatus(code=2, message=text))))
        assert (error.code(), error.details()) == (grpc.StatusCode.UNKNOWN, text)
    # unimplemented_method, unimplemented_service
    for path in ("/grpc.testing.TestService/UnimplementedCall", "/grpc.testing.UnimplementedService/UnimplementedCall"):
        assert (await fails(channel.unary_unary(path)(b""))).code() is grpc.StatusCode.UNIMPLEMENTED


def lies(kind, least):
    listed = subprocess.run([HOSTILE, "list", kind], capture_output=True, text=True, check=True).stdout
    names = [line.partition("\t")[0] for line in listed.splitlines()]
    assert len(names) >= least
    return names


def left():
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), sum("/memfd:" in line for line in maps)


class Any(grpc.GenericRpcHandler):
    """Echoes the bytes of each method."""

    def service(self, handler_call_details):
        async def echo(request_iterator, context):
            async for request in request_iterator:
                yield request

        return grpc.stream_stream_rpc_method_handler(echo)


@needs_hostile
@pytest.mark.parametrize(("kind", "least"), [("greeting", 20), ("client", 35)])
def test_a_server_outlives_hostile_clients(kind, least):
    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            socket = f"{directory}/victim.sock"
            server = tollfree.aio.server()
            server.add_generic_rpc_handlers([Any()])
            server.add_insecure_port(f"shm://{socket}")
            await server.start()
            async with tollfree.aio.insecure_channel(f"shm://{socket}") as channel:
                call = channel.unary_unary("/any/Method")
                await call(b"before")
                before = left()
                for name in lies(kind, least):
                    harm = await asyncio.create_subprocess_exec(
                        HOSTILE, kind, name, socket, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                    )
                    said, _ = await harm.communicate()
                    assert harm.returncode == 0, f"{name}: {said.decode()}"
                    assert await call(b"beside", timeout=10) == b"beside"
                del harm, said
                for _ in range(1000):
                    if left() <= before and not server._calls:
                        break
                    await asyncio.sleep(0.01)
                assert not server._calls and left()[0] <= before[0] and left()[1] <= before[1]
            await server.stop(None)

    asyncio.run(scenario())


@needs_hostile
@pytest.mark.parametrize(("kind", "least"), [("welcome", 10), ("server", 35)])
def test_a_client_outlives_hostile_servers(kind, least):
    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            for nth, name in enumerate(lies(kind, least)):
                socket = f"{directory}/{nth}.sock"
                with subprocess.Popen([HOSTILE, kind, name, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
                    assert peer.stdout.readline() == "ready\n"
                    async with tollfree.aio.insecure_channel(f"shm://{socket}") as channel:
                        # Some lies come after a right answer.
                        call = channel.unary_unary("/any/Method")(b"called", timeout=2)
                        try:
                            await call
                        except grpc.aio.AioRpcError as error:
                            assert error.code() is not grpc.StatusCode.OK
                    peer.communicate(timeout=30)

    descriptors = left()[0]
    asyncio.run(scenario())
    assert left()[0] <= descriptors
