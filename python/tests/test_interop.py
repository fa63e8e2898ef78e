"""gRPC's interoperability cases with the Rust implementation at the other end, in both directions, and through a gateway."""

import asyncio
import os
import pathlib
import socket
import subprocess
import threading
import time
from concurrent import futures

import grpc
import pytest

import tollfree

INTEROP = os.environ.get("TOLLFREE_INTEROP")
pytestmark = pytest.mark.skipif(INTEROP is None, reason="TOLLFREE_INTEROP names no reference; `make python` builds one")


@pytest.fixture(scope="module", autouse=True)
def stubs():
    import conftest

    conftest.generate(pathlib.Path(__file__).parents[2] / "tests/interop/proto", "grpc/testing/*.proto")


class Reference:
    """The Rust implementation in a process of its own, until its standard input ends."""

    def __init__(self, *arguments):
        self._process = subprocess.Popen([INTEROP, *arguments], stdin=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        assert self._process.wait(20) == 0


def _server():
    import interop_service
    from grpc.testing import test_pb2_grpc

    server = tollfree.server(futures.ThreadPoolExecutor(16))
    test_pb2_grpc.add_TestServiceServicer_to_server(interop_service.TestService(), server)
    return server


def test_a_rust_client_passes_every_case_at_a_python_server(tmp_path):
    address = f"shm://{tmp_path}/python.sock"
    server = _server()
    server.add_insecure_port(address)
    server.start()
    # A handler can't tell which message of a stream was compressed, and grpcio has no load reports.
    absent = ["client_compressed_streaming", "pick_first_unary", "orca_per_rpc", "orca_oob"]
    skipped = [word for case in absent for word in ("--except", case)]
    ran = subprocess.run([INTEROP, "call", address, *skipped], capture_output=True, text=True, timeout=120)
    server.stop(None)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "large_unary" in ran.stdout + ran.stderr


def test_a_python_client_passes_the_cases_at_a_rust_server(tmp_path):
    address = f"shm://{tmp_path}/rust.sock"
    with Reference("serve", address), tollfree.insecure_channel(address) as channel:
        _cases(channel)


def test_a_python_client_passes_the_cases_at_a_python_server(tmp_path):
    address = f"shm-abstract:tollfree-python-{os.getpid()}"
    server = _server()
    server.add_insecure_port(address)
    server.start()
    with tollfree.insecure_channel(address) as channel:
        _cases(channel)
    server.stop(None)


def _cases(channel):
    from grpc.testing import empty_pb2, messages_pb2, test_pb2_grpc

    stub = test_pb2_grpc.TestServiceStub(channel)
    payload = lambda size: messages_pb2.Payload(body=bytes(size))  # noqa: E731
    request = messages_pb2.SimpleRequest
    # empty_unary, large_unary
    assert stub.EmptyCall(empty_pb2.Empty(), wait_for_ready=True) == empty_pb2.Empty()
    answer = stub.UnaryCall(request(response_size=314159, payload=payload(271828)))
    assert len(answer.payload.body) == 314159
    # client_compressed_unary, server_compressed_unary
    probe = request(response_size=314159, payload=payload(271828), expect_compressed=messages_pb2.BoolValue(value=True))
    with pytest.raises(grpc.RpcError) as caught:
        stub.UnaryCall(probe)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    probe.response_compressed.value = True
    accepts = (("grpc-accept-encoding", "identity,gzip"),)
    answer, call = stub.UnaryCall.with_call(probe, compression=grpc.Compression.Gzip, metadata=accepts)
    assert len(answer.payload.body) == 314159
    # client_streaming, server_streaming
    sizes = [27182, 8, 1828, 45904]
    uploads = [messages_pb2.StreamingInputCallRequest(payload=payload(size)) for size in sizes]
    assert stub.StreamingInputCall(iter(uploads)).aggregated_payload_size == sum(sizes)
    wanted = [31415, 9, 2653, 58979]
    parameters = [messages_pb2.ResponseParameters(size=size) for size in wanted]
    downloads = stub.StreamingOutputCall(messages_pb2.StreamingOutputCallRequest(response_parameters=parameters))
    assert [len(each.payload.body) for each in downloads] == wanted
    # ping_pong, empty_stream
    turn = threading.Semaphore(1)

    def pings():
        for size, of in zip(wanted, sizes, strict=True):
            turn.acquire()
            asked = [messages_pb2.ResponseParameters(size=size)]
            yield messages_pb2.StreamingOutputCallRequest(response_parameters=asked, payload=payload(of))

    for size, answer in zip(wanted, stub.FullDuplexCall(pings()), strict=True):
        assert len(answer.payload.body) == size
        turn.release()
    assert list(stub.FullDuplexCall(iter(()))) == []
    # cancel_after_begin, cancel_after_first_response
    upload = stub.StreamingInputCall.future(iter(lambda: threading.Event().wait(1), 0))
    upload.cancel()
    assert upload.code() is grpc.StatusCode.CANCELLED
    ended = threading.Event()

    def one():
        yield messages_pb2.StreamingOutputCallRequest(response_parameters=parameters[:1])
        ended.wait(5)

    first = stub.FullDuplexCall(one())
    next(first)
    first.cancel()
    ended.set()
    assert first.code() is grpc.StatusCode.CANCELLED
    # timeout_on_sleeping_server
    slow = messages_pb2.StreamingOutputCallRequest(response_parameters=[messages_pb2.ResponseParameters(size=1, interval_us=500_000)])
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.FullDuplexCall(iter([slow]), timeout=0.02))
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # custom_metadata
    sent = (("x-grpc-test-echo-initial", "test_initial_metadata_value"), ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"))
    _, call = stub.UnaryCall.with_call(request(response_size=1), metadata=sent)
    assert sent[0] in call.initial_metadata() and sent[1] in call.trailing_metadata()
    # status_code_and_message, special_status_message
    for text in ("test status message", "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"):
        status = messages_pb2.EchoStatus(code=2, message=text)
        with pytest.raises(grpc.RpcError) as caught:
            stub.UnaryCall(request(response_status=status))
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNKNOWN, text)
    # unimplemented_method, unimplemented_service
    for path in ("/grpc.testing.TestService/UnimplementedCall", "/grpc.testing.UnimplementedService/UnimplementedCall"):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path)(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_gateway_calls_a_python_server_and_it_attaches_again(tmp_path):
    from grpc.testing import empty_pb2, test_pb2_grpc

    backends, address = f"shm://{tmp_path}/backends.sock", f"127.0.0.1:{_free_port()}"
    config = tmp_path / "gateway.toml"
    config.write_text(f'[listeners.world]\naddress = "{address}"\n[backends]\nsocket = "{backends}"\n[groups.default]\n')
    server = _server()
    for attempt in range(2):
        with Reference("gateway", str(config)):
            if attempt == 0:
                server.attach(backends, "default")
            with grpc.insecure_channel(address) as channel:
                stub = test_pb2_grpc.TestServiceStub(channel)
                for _ in range(200):
                    try:
                        assert stub.EmptyCall(empty_pb2.Empty(), wait_for_ready=True, timeout=20) == empty_pb2.Empty()
                        break
                    except grpc.RpcError:
                        time.sleep(0.05)
                _cases_through_gateway(stub)
            refused = _server()
            with pytest.raises(ConnectionRefusedError, match="no group nothing-like-it"):
                refused.attach(backends, "nothing-like-it")
            refused.stop(None)
    server.stop(None)


def test_a_gateway_calls_a_server_of_asyncio_and_it_attaches_again(tmp_path):
    from grpc.testing import empty_pb2, test_pb2_grpc

    class Service(test_pb2_grpc.TestServiceServicer):
        async def EmptyCall(self, request, context):
            return request

    backends, address = f"shm://{tmp_path}/backends.sock", f"127.0.0.1:{_free_port()}"
    config = tmp_path / "gateway.toml"
    config.write_text(f'[listeners.world]\naddress = "{address}"\n[backends]\nsocket = "{backends}"\n[groups.default]\n')

    async def served():
        server = tollfree.aio.server()
        test_pb2_grpc.add_TestServiceServicer_to_server(Service(), server)
        with pytest.raises(TimeoutError, match="backends.sock"):
            await server.attach(backends, "default", timeout=0.1)
        for _ in range(2):
            with Reference("gateway", str(config)):
                async with grpc.aio.insecure_channel(address) as channel:
                    stub = test_pb2_grpc.TestServiceStub(channel)
                    for _ in range(200):
                        try:
                            assert await stub.EmptyCall(empty_pb2.Empty(), wait_for_ready=True, timeout=20) == empty_pb2.Empty()
                            break
                        except grpc.aio.AioRpcError:
                            await asyncio.sleep(0.05)
                refused = tollfree.aio.server()
                with pytest.raises(ConnectionRefusedError, match="no group nothing-like-it"):
                    await refused.attach(backends, "nothing-like-it")
                await refused.stop(None)
        await server.stop(None)

    asyncio.run(served())


def _cases_through_gateway(stub):
    from grpc.testing import messages_pb2

    answer = stub.UnaryCall(messages_pb2.SimpleRequest(response_size=100_000))
    assert len(answer.payload.body) == 100_000


def test_a_gateway_that_refuses_for_good_is_named(tmp_path):
    server = _server()
    with pytest.raises(TimeoutError, match="nobody.sock"):
        server.attach(f"shm://{tmp_path}/nobody.sock", timeout=0.3)
    server.stop(None)
