"""Interceptors of grpc.aio at both ends."""

import asyncio
import contextvars
import gc

import grpc
import pytest
from aio_support import Note, error_of, pair, run


class Seen:
    """What interceptors have seen, in order."""

    def __init__(self):
        self.calls = []


class _Marks:
    """Marks a call's metadata, and notes that it was here."""

    def __init__(self, name, seen):
        self.name, self.seen = name, seen

    def marked(self, details):
        assert isinstance(details.metadata, grpc.aio.Metadata)
        assert details.method.startswith(b"/tollfree.aiotest.AioEcho/")
        self.seen.calls.append((self.name, details.method.decode().rpartition("/")[2], details.timeout))
        metadata = details.metadata + grpc.aio.Metadata(("mark", self.name))
        return grpc.aio.ClientCallDetails(details.method, details.timeout, metadata, details.credentials, details.wait_for_ready)


class UnaryUnary(_Marks, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, client_call_details, request):
        call = await continuation(self.marked(client_call_details), request)
        assert isinstance(call, grpc.aio.UnaryUnaryCall)
        return call


class UnaryStream(_Marks, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, client_call_details, request):
        return await continuation(self.marked(client_call_details), request)


class StreamUnary(_Marks, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, continuation, client_call_details, request_iterator):
        return await continuation(self.marked(client_call_details), request_iterator)


class StreamStream(_Marks, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation, client_call_details, request_iterator):
        return await continuation(self.marked(client_call_details), request_iterator)


KINDS = [UnaryUnary, UnaryStream, StreamUnary, StreamStream]


def intercepted(*interceptors):
    return {"channel": {"interceptors": list(interceptors)}}


def test_all_four_kinds_in_order():
    async def scenario():
        seen = Seen()
        both_of_each = [kind(name, seen) for kind in KINDS for name in ("outer", "inner")]
        async with pair(**intercepted(*both_of_each)) as both:
            call = both.stub.Unary(Note(text="metadata", count=1), timeout=30)
            assert (await call).count == 2
            assert [value for key, value in both.servicer.metadata if key == "mark"] == ["outer", "inner"]
            assert (await call.initial_metadata())["first"] == "1" and await call.code() is grpc.StatusCode.OK
            assert call.done() and not call.cancelled() and 0 < call.time_remaining() <= 30
            assert [each.count async for each in both.stub.Download(Note(count=3))] == [0, 1, 2]
            download = both.stub.Download(Note(count=2))
            assert [(await download.read()).count for _ in range(2)] == [0, 1]
            assert await download.read() is grpc.aio.EOF
            assert (await both.stub.Upload([Note(count=2)] * 3)).count == 6
            upload = both.stub.Upload()
            for _ in range(3):
                await upload.write(Note(count=3))
            await upload.done_writing()
            assert (await upload).count == 9
            assert [each.count async for each in both.stub.Chat([Note(count=1)] * 2)] == [2, 2]
            chat = both.stub.Chat()
            for count in range(5):
                await chat.write(Note(count=count))
                assert (await chat.read()).count == count + 1
            await chat.done_writing()
            await chat.done_writing()
            with pytest.raises(asyncio.InvalidStateError, match="half closed|finished"):
                await chat.write(Note())
            assert await chat.read() is grpc.aio.EOF
            with pytest.raises(asyncio.InvalidStateError):
                await chat.write(Note())
            names = [(name, method) for name, method, _ in seen.calls]
            expected = ["Unary"] + ["Download"] * 2 + ["Upload"] * 2 + ["Chat"] * 2
            assert names == [(name, method) for method in expected for name in ("outer", "inner")]
            assert seen.calls[0][2] == 30

    run(scenario)


def test_interceptors_answer_themselves():
    class Answers(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, client_call_details, request):
            return Note(text="here")

    class Doubles(grpc.aio.UnaryStreamClientInterceptor):
        async def intercept_unary_stream(self, continuation, client_call_details, request):
            call = await continuation(client_call_details, request)
            assert isinstance(call, grpc.aio.UnaryStreamCall)

            async def doubled():
                async for each in call:
                    yield Note(count=each.count * 2)

            return doubled()

    async def scenario():
        async with pair(**intercepted(Answers(), Doubles(), Doubles())) as both:
            call = both.stub.Unary(Note())
            assert (await call).text == "here" and await call.code() is grpc.StatusCode.OK
            call = both.stub.Download(Note(count=4))
            assert [each.count async for each in call] == [0, 4, 8, 12]
            assert await call.code() is grpc.StatusCode.OK

    run(scenario)


def test_interceptors_try_again_and_go_elsewhere():
    class Again(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, client_call_details, request):
            call = await continuation(client_call_details, request)
            if await call.code() is not grpc.StatusCode.OK:
                call = await continuation(client_call_details._replace(method="/tollfree.aiotest.AioEcho/Unary"), Note())
            return call

    async def scenario():
        async with pair(**intercepted(Again())) as both:
            elsewhere = both.channel.unary_unary("/nothing.Here/Unary", Note.SerializeToString, Note.FromString)
            assert (await elsewhere(Note())).count == 1

    run(scenario)


def test_errors_and_cancelling_behind_interceptors():
    class Raises(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, client_call_details, request):
            await (await continuation(client_call_details, request))
            raise ValueError("an interceptor's own error")

    class Waits(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, client_call_details, request):
            await asyncio.sleep(100)

    async def scenario():
        seen = Seen()
        async with pair(**intercepted(*(kind("one", seen) for kind in KINDS))) as both:
            call = both.stub.Unary(Note(text="abort"))
            error = await error_of(call)
            assert error.code() is await call.code() is grpc.StatusCode.FAILED_PRECONDITION
            call = both.stub.Unary(Note(text="wait"))
            ended = []
            call.add_done_callback(ended.append)
            await both.servicer.entered.wait()
            assert call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert call.cancelled() and ended == [call]
            chat = both.stub.Chat()
            await chat.write(Note())
            await chat.read()
            chat.cancel()
            with pytest.raises(asyncio.InvalidStateError):
                await chat.write(Note())
        async with pair(**intercepted(Raises())) as both:
            call = both.stub.Unary(Note(text="abort"))
            error = await error_of(call)
            assert (await call.details(), await call.trailing_metadata()) == (error.details(), error.trailing_metadata())
            with pytest.raises(ValueError, match="own error"):
                await both.stub.Unary(Note())
            # Nobody has to await a call.
            complaints = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            call = both.stub.Unary(Note())
            await asyncio.wait((call._task,))
            del call
            gc.collect()
            assert not complaints
        async with pair(**intercepted(Waits())) as both:
            call = both.stub.Unary(Note())
            await asyncio.sleep(0)
            assert call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert call.cancelled() and await call.code() is grpc.StatusCode.CANCELLED
            waiting = both.stub.Unary(Note())
            await both.channel.close()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    run(scenario)


def test_what_is_no_interceptor_is_refused():
    async def scenario():
        with pytest.raises(ValueError, match="interceptor"):
            async with pair(**intercepted(object())):
                pass
        with pytest.raises(ValueError, match="interceptor"):
            async with pair(server={"interceptors": [object()]}):
                pass

    run(scenario)


def test_server_interceptors():
    number = contextvars.ContextVar("number", default=0)

    class Counts(grpc.aio.ServerInterceptor):
        def __init__(self, name):
            self.name = name

        async def intercept_service(self, continuation, handler_call_details):
            assert ("one", "1") in handler_call_details.invocation_metadata
            order.append((self.name, handler_call_details.method))
            assert number.get() == len(order) - 1, "the handlers begin in an empty context"
            number.set(len(order))
            return await continuation(handler_call_details)

    class Refuses(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation, handler_call_details):
            async def refuse(request, context):
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "not you")

            if handler_call_details.method.endswith("Unary"):
                return grpc.unary_unary_rpc_method_handler(refuse)
            if handler_call_details.method.endswith("Download"):
                raise ValueError("an interceptor's own error")
            return await continuation(handler_call_details)

    order = []

    async def scenario():
        interceptors = [Counts("outer"), Counts("inner"), Refuses()]
        number.set(77)
        async with pair(server={"interceptors": interceptors}) as both:
            metadata = (("one", "1"),)
            path = "/tollfree.aiotest.AioEcho/"
            error = await error_of(both.stub.Unary(Note(), metadata=metadata))
            assert (error.code(), error.details()) == (grpc.StatusCode.UNAUTHENTICATED, "not you")
            assert order == [("outer", f"{path}Unary"), ("inner", f"{path}Unary")]
            order.clear()
            assert (await both.stub.Upload([Note(count=1)], metadata=metadata)).count == 1
            order.clear()
            error = await error_of(both.stub.Download(Note(), metadata=metadata).read())
            assert error.code() is grpc.StatusCode.UNKNOWN and "own error" in error.details()
            order.clear()
            error = await error_of(both.channel.unary_unary("/no.Such/Method")(b"", metadata=metadata))
            assert error.code() is grpc.StatusCode.UNIMPLEMENTED

    run(scenario)
