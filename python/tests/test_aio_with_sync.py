"""Asyncio's ends with those for threads."""

import asyncio
import tempfile
from concurrent import futures

import grpc
import pytest
from aio_support import Note, error_of, pair, pb_grpc

import tollfree
import tollfree.aio


class Sync(pb_grpc.AioEchoServicer):
    """Handlers for a server with threads."""

    def Unary(self, request, context):
        if request.text == "abort":
            context.abort(grpc.StatusCode.ABORTED, "from a thread")
        context.set_trailing_metadata((("last", context.peer()),))
        return Note(count=request.count + 1)

    def Download(self, request, context):
        for count in range(request.count):
            yield Note(count=count, data=request.data)

    def Upload(self, request_iterator, context):
        return Note(count=sum(request.count for request in request_iterator))

    def Chat(self, request_iterator, context):
        for request in request_iterator:
            yield Note(count=request.count + 1)


def test_asyncios_client_calls_a_server_with_threads():
    async def scenario():
        with tempfile.TemporaryDirectory() as directory, futures.ThreadPoolExecutor(4) as pool:
            server = tollfree.server(pool, compression=grpc.Compression.Gzip)
            pb_grpc.add_AioEchoServicer_to_server(Sync(), server)
            server.add_insecure_port(f"shm://{directory}/s.sock")
            server.start()
            async with tollfree.aio.insecure_channel(f"shm://{directory}/s.sock") as channel:
                stub = pb_grpc.AioEchoStub(channel)
                call = stub.Unary(Note(count=1))
                assert (await call).count == 2
                assert (await call.trailing_metadata())["last"].startswith("unix:pid=")
                error = await error_of(stub.Unary(Note(text="abort")))
                assert (error.code(), error.details()) == (grpc.StatusCode.ABORTED, "from a thread")
                data = bytes(3000)
                assert [each.count async for each in stub.Download(Note(count=2000, data=data))] == list(range(2000))
                assert (await stub.Upload([Note(count=1)] * 2000)).count == 2000
                chat = stub.Chat()
                for count in range(100):
                    await chat.write(Note(count=count))
                    assert (await chat.read()).count == count + 1
                await chat.done_writing()
                assert await chat.read() is grpc.aio.EOF
                assert len(await asyncio.gather(*(_count(stub, count) for count in range(100)))) == 100
            await asyncio.to_thread(server.stop, None)

    # A loop for the server's threads goes a little later.
    asyncio.run(scenario())


async def _count(stub, count):
    answer = await stub.Unary(Note(count=count))
    assert answer.count == count + 1
    return answer


def test_a_client_with_threads_calls_asyncios_server():
    def use(address):
        with tollfree.insecure_channel(address) as channel:
            stub = pb_grpc.AioEchoStub(channel)
            assert stub.Unary(Note(count=1)).count == 2
            with pytest.raises(grpc.RpcError) as caught:
                stub.Unary(Note(text="abort"))
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert [each.count for each in stub.Download(Note(count=2000, data=bytes(3000)))] == list(range(2000))
            assert stub.Upload(iter([Note(count=1)] * 2000)).count == 2000
            assert [each.count for each in stub.Chat(iter([Note(count=1)] * 100))] == [2] * 100
            with pytest.raises(grpc.RpcError) as caught:
                stub.Unary(Note(text="wait"), timeout=0.05)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def scenario():
        async with pair() as both:
            await asyncio.gather(*(asyncio.to_thread(use, both.address) for _ in range(3)))
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)] * 3

    asyncio.run(scenario())
