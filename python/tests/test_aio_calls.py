"""Calls of asyncio channels to asyncio servers, by generated stubs as they are."""

import asyncio
import tempfile
import threading

import grpc
import pytest
from aio_support import Note, error_of, pair, pb_grpc, run, until

import tollfree.aio


def test_all_four_kinds():
    async def scenario():
        async with pair() as both:
            assert await both.stub.Unary(Note(text="hello", count=1)) == Note(text="hello", count=2)
            assert [each.count async for each in both.stub.Download(Note(count=100))] == list(range(100))

            async def requests():
                for count in range(1, 4):
                    yield Note(count=count)

            assert (await both.stub.Upload(requests())).count == 6
            assert (await both.stub.Upload([Note(count=5)] * 200)).count == 1000
            assert [each.count async for each in both.stub.Chat(requests())] == [2, 3, 4]

    run(scenario)


def test_streams_are_read_and_written_by_turns():
    async def scenario():
        async with pair() as both:
            call = both.stub.Chat()
            for count in range(50):
                await call.write(Note(count=count))
                assert (await call.read()).count == count + 1
            await call.done_writing()
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK and call.done() and not call.cancelled()
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(Note())
            upload = both.stub.Upload()
            for count in range(3):
                await upload.write(Note(count=count))
            await upload.done_writing()
            with pytest.raises(asyncio.InvalidStateError, match="half closed|finished"):
                await upload.write(Note())
            assert (await upload).count == 3
            assert (await upload).count == 3, "the same answer again"

    run(scenario)


def test_styles_of_reading_and_writing_do_not_mix():
    async def scenario():
        async with pair() as both:
            call = both.stub.Download(Note(count=3))
            await call.read()
            with pytest.raises(grpc.aio.UsageError):
                call.__aiter__()
            call.cancel()
            call = both.stub.Download(Note(count=3))
            assert (await anext(aiter(call))).count == 0
            assert [each.count async for each in call] == [1, 2], "an iterator goes on where it was"
            call = both.stub.Chat(iter([Note()]))
            with pytest.raises(grpc.aio.UsageError):
                await call.write(Note())
            with pytest.raises(grpc.aio.UsageError):
                await call.done_writing()
            assert [each.count async for each in call] == [1]

    run(scenario)


@pytest.mark.parametrize("size", [0, 1, 5000, 100_000, 3 << 20])
def test_messages_of_all_sizes(size):
    async def scenario():
        async with pair() as both:
            data = bytes(range(256)) * (size // 256) + bytes(size % 256)
            assert (await both.stub.Unary(Note(data=data))).data == data
            assert [each.data async for each in both.stub.Download(Note(data=data, count=3))] == [data] * 3
            assert [each.data async for each in both.stub.Chat([Note(data=data)] * 3)] == [data] * 3

    run(scenario)


def test_a_handlers_end_is_the_callers_error():
    async def scenario():
        async with pair() as both:
            error = await error_of(both.stub.Unary(Note(text="abort")))
            assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "as asked: 100 % ü")
            assert tuple(error.trailing_metadata()) == (("why-bin", b"\x00\xff"),)
            error = await error_of(both.stub.Unary(Note(text="code")))
            assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "by code")
            for text in ("raise", "wrong"):
                call = both.stub.Unary(Note(text=text))
                error = await error_of(call)
                wanted = grpc.StatusCode.UNKNOWN if text == "raise" else grpc.StatusCode.INTERNAL
                assert (error.code(), await call.code()) == (wanted, wanted)
            assert "serialize" in error.details()
            call, seen = both.stub.Download(Note(text="abort", count=9)), []
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for each in call:
                    seen.append(each.count)
            assert seen == [0, 1, 2] and caught.value.code() is grpc.StatusCode.DATA_LOSS
            error = await error_of(both.channel.unary_unary("/tollfree.aiotest.AioEcho/Nothing")(b""))
            assert (error.code(), error.details()) == (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    run(scenario)


def test_metadata_go_both_ways():
    async def scenario():
        async with pair() as both:
            for metadata in ((("one", "1"), ("two-bin", b"\x00\x01")), grpc.aio.Metadata(("one", "1"), ("two-bin", b"\x00\x01"))):
                call = both.stub.Unary(Note(text="metadata"), metadata=metadata)
                assert (await call.initial_metadata())["first"] == "1", "before the answer is awaited"
                await call
                assert tuple(await call.initial_metadata()) == (("first", "1"), ("raw-bin", b"\x00\xff"))
                assert tuple(await call.trailing_metadata()) == (("last", "2"), ("tail-bin", b"\x01\x02"))
                assert isinstance(await call.trailing_metadata(), grpc.aio.Metadata)
                assert ("one", "1") in both.servicer.metadata and ("two-bin", b"\x00\x01") in both.servicer.metadata
            with pytest.raises(ValueError, match="Bad"):
                both.stub.Unary(Note(), metadata=(("Bad", "1"),))

    run(scenario)


def test_wrong_types_are_errors_of_their_calls():
    async def scenario():
        async with pair() as both:
            for call in (both.stub.Unary("no message"), both.stub.Upload(["no message"])):
                error = await error_of(call)
                assert error.code() is grpc.StatusCode.INTERNAL and "serializing" in error.details()
            call = both.stub.Chat()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.write("no message")
            assert caught.value.code() is grpc.StatusCode.INTERNAL
            unreadable = both.channel.unary_unary("/tollfree.aiotest.AioEcho/Unary", Note.SerializeToString, lambda data: 1 / 0)
            error = await error_of(unreadable(Note()))
            assert error.code() is grpc.StatusCode.INTERNAL and "deserializing" in error.details()
            garbled = both.channel.unary_unary("/tollfree.aiotest.AioEcho/Unary")
            error = await error_of(garbled(b"\xff\xff\xff"))
            assert error.code() is grpc.StatusCode.INTERNAL and "deserializing request" in error.details()
            error = await error_of(garbled("text"))
            assert error.code() is grpc.StatusCode.INTERNAL
            assert (await garbled(b"\x18\x01")) == b"\x18\x02", "bytes as they are"

    run(scenario)


def test_calls_of_another_kind_than_their_method():
    async def scenario():
        async with pair() as both:
            several = both.channel.unary_unary("/tollfree.aiotest.AioEcho/Download", Note.SerializeToString, Note.FromString)
            for count in (0, 2):
                error = await error_of(several(Note(count=count)))
                assert error.code() is grpc.StatusCode.INTERNAL and "no message or several" in error.details()
            none = both.channel.stream_unary("/tollfree.aiotest.AioEcho/Unary", Note.SerializeToString, Note.FromString)
            error = await error_of(none([]))
            assert error.code() is grpc.StatusCode.INTERNAL and "no request" in error.details()
            assert (await none([Note(count=1), Note(count=7)])).count == 2, "the first counts"

    run(scenario)


def test_an_iterator_of_requests_that_raises_ends_its_call():
    async def scenario():
        async with pair() as both:

            async def requests():
                yield Note(count=1)
                raise ValueError("an error of the program's")

            call = both.stub.Upload(requests())
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await call.code() is grpc.StatusCode.CANCELLED

    run(scenario)


def test_deadlines_at_both_ends():
    async def scenario():
        async with pair() as both:
            call = both.stub.Unary(Note(text="wait"), timeout=0.4)
            assert 0 < call.time_remaining() <= 0.4
            assert (await error_of(call)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)]
            assert 500 < (await both.stub.Unary(Note(text="remaining"), timeout=1)).count <= 1000
            assert both.stub.Unary(Note()).time_remaining() is None
            error = await error_of(both.stub.Unary(Note(), timeout=0))
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            call = both.stub.Download(Note(text="wait", count=9), timeout=0.4)
            seen = []
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for each in call:
                    seen.append(each.count)
            assert seen == [0, 1, 2] and caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    run(scenario)


@pytest.mark.parametrize("side", ["channel", "server", "call", "context"])
def test_compression(side):
    async def scenario():
        gzip = grpc.Compression.Gzip
        given = {side: {"compression": gzip}} if side in ("channel", "server") else {}
        async with pair(**given) as both:
            data = bytes(100_000)
            compression = grpc.Compression.Deflate if side == "call" else None
            assert (await both.stub.Unary(Note(data=data), compression=compression)).data == data
            assert [each.data async for each in both.stub.Chat([Note(data=data)] * 3, compression=compression)] == [data] * 3
            assert [each.data async for each in both.stub.Download(Note(data=data, count=2))] == [data] * 2
            if side == "context":

                async def compressing(request, context):
                    context.set_compression(gzip)
                    await context.write(data)
                    context.disable_next_message_compression()
                    await context.write(data)
                    with pytest.raises(RuntimeError):
                        context.set_compression(gzip)

                handler = grpc.unary_stream_rpc_method_handler(compressing)
                both.server.add_registered_method_handlers("test.Raw", {"Compressing": handler})
                call = both.channel.unary_stream("/test.Raw/Compressing")(b"")
                await until(lambda: len(call._state.messages) == 2)
                assert [type(message) is tuple for message in call._state.messages] == [True, False], "one is compressed"
                assert [each async for each in call] == [data] * 2

    run(scenario)


def test_messages_longer_than_limits():
    async def scenario():
        limits = [("grpc.max_receive_message_length", 1000), ("grpc.max_send_message_length", 5000)]
        async with pair(channel={"options": limits}, server={"options": [("grpc.max_receive_message_length", 3000)]}) as both:
            assert len((await both.stub.Unary(Note(data=bytes(900)))).data) == 900
            # More than the client takes, than the server takes, and than the client sends.
            for size in (1100, 4000, 6000):
                error = await error_of(both.stub.Unary(Note(data=bytes(size))))
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, size
            assert "6003" in error.details() and "5000" in error.details()
            # Compressed, they are as long as they are afterwards.
            error = await error_of(both.stub.Unary(Note(data=bytes(2000)), compression=grpc.Compression.Gzip))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        async with pair(channel={"options": [("grpc.max_receive_message_length", -1)]}, server={"options": limits[:1]}) as both:
            assert len([each async for each in both.stub.Download(Note(data=bytes(900), count=3))]) == 3

    run(scenario)


def test_a_service_config_gives_terms_of_methods():
    config = """{"methodConfig": [
        {"name": [{"service": "tollfree.aiotest.AioEcho", "method": "Unary"}], "timeout": "0.05s"},
        {"name": [{"service": "tollfree.aiotest.AioEcho"}], "maxResponseMessageBytes": 50}
    ]}"""

    async def scenario():
        async with pair(channel={"options": [("grpc.service_config", config)]}) as both:
            error = await error_of(both.stub.Unary(Note(text="wait")))
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            call = both.stub.Download(Note(data=bytes(100), count=1))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(ValueError, match="no JSON"):
            async with pair(channel={"options": [("grpc.service_config", "{")]}):
                pass

    run(scenario)


def test_failed_attempts_are_made_again_as_the_service_config_says():
    policy = """{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s",
        "maxBackoff": "0.01s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"""

    async def scenario():
        async with pair(channel={"options": [("grpc.service_config", policy)]}) as both:
            attempts = []

            async def flaky(request, context):
                attempts.append(request)
                if len(attempts) < 3:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
                return b"at last"

            handlers = {"Call": grpc.unary_unary_rpc_method_handler(flaky)}
            both.server.add_registered_method_handlers("test.Flaky", handlers)
            assert await both.channel.unary_unary("/test.Flaky/Call")(b"again") == b"at last"
            assert attempts == [b"again"] * 3

    run(scenario)


def test_call_credentials_add_their_pairs():
    class Plugin(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            assert context.method_name == "Unary"
            callback((("authorization", "token"),), None)

    class Failing(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            callback(None, ValueError("no token"))

    async def scenario():
        async with pair() as both:
            call = both.stub.Unary(Note(text="metadata"), credentials=grpc.metadata_call_credentials(Plugin()))
            await call
            assert ("authorization", "token") in both.servicer.metadata
            error = await error_of(both.stub.Unary(Note(), credentials=grpc.metadata_call_credentials(Failing())))
            assert error.code() is grpc.StatusCode.UNAVAILABLE and "no token" in error.details()
            chat = both.stub.Chat([Note(), Note()], credentials=grpc.access_token_call_credentials("x"))
            assert len([each async for each in chat]) == 2
            # What else a call says goes out with them.
            given = {"compression": grpc.Compression.Gzip, "metadata": (("one", "1"),), "timeout": 30, "wait_for_ready": True}
            credentials = grpc.metadata_call_credentials(Plugin())
            assert (await both.stub.Unary(Note(data=bytes(9000)), credentials=credentials, **given)).data == bytes(9000)
            await both.stub.Unary(Note(text="metadata"), credentials=credentials, **given)
            assert {("one", "1"), ("authorization", "token")} <= set(both.servicer.metadata)
            assert 0 < (await both.stub.Unary(Note(text="remaining"), credentials=credentials, **given)).count <= 30_000
        with tempfile.TemporaryDirectory() as directory:
            async with tollfree.aio.insecure_channel(f"shm://{directory}/none.sock") as channel:
                stub = pb_grpc.AioEchoStub(channel)
                error = await error_of(stub.Unary(Note(), credentials=credentials, wait_for_ready=True, timeout=0.05))
                assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, "it has waited"

    run(scenario)


def test_a_call_is_cancelled_while_its_credentials_are_fetched():
    asked, may_answer = threading.Event(), threading.Event()

    class Slow(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            asked.set()
            may_answer.wait()
            callback((("authorization", "token"),), None)

    async def scenario():
        async with pair() as both:
            tasks = asyncio.all_tasks()
            for end in (lambda call: call.cancel(), lambda _: both.channel.close()):
                call = both.stub.Unary(Note(), credentials=grpc.metadata_call_credentials(Slow()))
                await until(asked.is_set)
                if (closing := end(call)) is not True:
                    await closing
                with pytest.raises(asyncio.CancelledError):
                    await call
                await asyncio.sleep(0.01)
                assert asyncio.all_tasks() == tasks, "nothing waits for the plugin any more"
                asked.clear()
            may_answer.set()
            assert not both.servicer.entered.is_set()

    run(scenario)


def test_done_callbacks():
    async def scenario():
        async with pair() as both:
            seen = []
            call = both.stub.Unary(Note())
            call.add_done_callback(seen.append)
            await call
            assert seen == [call]
            call.add_done_callback(seen.append)
            assert seen == [call, call], "it is over"
            call = both.stub.Unary(Note(text="abort"))
            call.add_done_callback(lambda call: 1 / 0)
            call.add_done_callback(seen.append)
            await error_of(call)
            assert seen[-1] is call
            assert "FAILED_PRECONDITION" in repr(call)

    run(scenario)
