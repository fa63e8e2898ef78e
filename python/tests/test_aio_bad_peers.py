"""Peers that say what no peer should: each such call ends with a status, and others go on."""

import asyncio
import gzip
import logging
import tempfile
import threading

import grpc
import pytest
from aio_support import Note, error_of, pair, pb_grpc, run

import tollfree.aio
from tollfree import _events, _metadata, _native

GZIP = _native.pack([("grpc-encoding", "gzip")])
UNARY = "/tollfree.aiotest.AioEcho/Unary"


def test_requests_that_can_not_be_read(caplog):
    caplog.set_level(logging.CRITICAL, "tollfree")

    def code_of(method, *arguments):
        code, _, _, trailers = method.unary(*arguments, is_whole=True)
        return _metadata.code_of(code), _metadata.details_of(_metadata.unpack(trailers))

    def attack(address):
        client = _native.Client()
        channel = client.open([(address, 1, 0)])
        method = client.method(channel, UNARY)
        plain = code_of(method, b"\xff\xff\xff")
        assert plain[0] is grpc.StatusCode.INTERNAL and "deserializing" in plain[1]
        for data, block, code in (
            (b"garbage", None, grpc.StatusCode.UNIMPLEMENTED),
            (b"garbage", GZIP, grpc.StatusCode.INTERNAL),
            (gzip.compress(bytes(1000))[:-9], GZIP, grpc.StatusCode.INTERNAL),
            (gzip.compress(bytes(100 << 20)), GZIP, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            assert code_of(method, data, block, None, False, True)[0] is code
        for path in ("", "/", "Unary", "//", "/" * 1000, "/\u00e4/\u2603"):
            assert code_of(client.method(channel, path), b"")[0] is not grpc.StatusCode.OK
        client.close_channel(channel)
        client.close()

    async def scenario():
        async with pair() as both:
            await asyncio.to_thread(attack, both.address)
            assert (await both.stub.Unary(Note(count=1))).count == 2
            await both.no_calls()

    asyncio.run(scenario())


class Liar:
    """A server whose answers a test gives."""

    def __init__(self, address, answer):
        self._loop = _native.Loop(True)
        self._loop.listen(address)
        self._answer = answer
        self._is_over = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while not self._is_over:
            for event in self._loop.next(0.01):
                if event[0] in (_events.CALL, _events.UNARY):
                    self._answer(event[1])

    def close(self):
        self._is_over = True
        self._thread.join()
        self._loop.close()


def trailers(*pairs):
    return _native.pack(pairs)


@pytest.mark.parametrize(
    ["answer", "code"],
    [
        # Compressed in no way that was named, and garbled.
        (lambda call: call.answer(b"", b"garbage", True, 0, b""), grpc.StatusCode.UNIMPLEMENTED),
        (lambda call: call.answer(GZIP, b"garbage", True, 0, b""), grpc.StatusCode.INTERNAL),
        (lambda call: call.answer(GZIP, gzip.compress(bytes(50 << 20)), True, 0, b""), grpc.StatusCode.RESOURCE_EXHAUSTED),
        # No message, and bytes that are none.
        (lambda call: call.answer(b"", None, False, 0, b""), grpc.StatusCode.INTERNAL),
        (lambda call: call.answer(b"", b"\xff\xff\xff", False, 0, b""), grpc.StatusCode.INTERNAL),
        # Numbers that are no codes, and words that are no text.
        (lambda call: call.answer(None, None, False, 77, b""), grpc.StatusCode.UNKNOWN),
        (lambda call: call.answer(None, None, False, 65535, trailers(("grpc-message", "%zz%ff%"))), grpc.StatusCode.UNKNOWN),
        # An end without a status alone, and a reset.
        (lambda call: call.answer(None, None, False, 0, b""), grpc.StatusCode.INTERNAL),
        (lambda call: call.cancel(14), grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_answers_that_can_not_be_read(answer, code):
    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            liar = Liar(f"shm://{directory}/s.sock", answer)
            async with tollfree.aio.insecure_channel(f"shm://{directory}/s.sock") as channel:
                stub = pb_grpc.AioEchoStub(channel)
                error = await error_of(stub.Unary(Note()))
                assert error.code() is code
                assert isinstance(error.details(), str) and isinstance(error.trailing_metadata(), grpc.aio.Metadata)
                call = stub.Download(Note())
                try:
                    while await call.read() is not grpc.aio.EOF:
                        pass
                except grpc.aio.AioRpcError as error:
                    assert error.code() is code
                assert channel._bridge.call_count() == 0
            await asyncio.to_thread(liar.close)

    asyncio.run(scenario())


@pytest.mark.parametrize("target", ["localhost:50051", "unix:/tmp/s", "", "shm:", "http://localhost"])
def test_what_is_no_address_of_shared_memory(target):
    async def scenario():
        with pytest.raises(ValueError):
            tollfree.aio.insecure_channel(target)

    run(scenario)
