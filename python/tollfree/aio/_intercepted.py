"""Calls behind interceptors: a task runs the chain, and the call that it gives is what the caller uses."""

import asyncio
import functools

import grpc
from grpc.aio import EOF, AioRpcError, Metadata, UsageError

from tollfree.aio import _call


class _Answered:
    """What an interceptor answered itself in place of a call."""

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback) -> None:
        callback(self)

    def time_remaining(self):
        return None

    async def initial_metadata(self) -> Metadata:
        return Metadata()

    async def trailing_metadata(self) -> Metadata:
        return Metadata()

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    async def debug_error_string(self) -> str:
        return ""

    async def wait_for_connection(self) -> None:
        return None


class _AnsweredUnary(_Answered, grpc.aio.UnaryUnaryCall):
    """A message in place of a call."""

    def __init__(self, answer):
        self._answer = answer

    def __await__(self):
        return self._answer
        # What follows makes this a generator, as what is awaited has to be.
        yield


class _Iterated:
    """An iterator in place of a call's answers. What else there is to know is the call's, if the interceptor made one."""

    def __init__(self, call, iterator):
        self._call = call if call is not None else _Answered()
        self._iterator = iterator

    def __getattr__(self, name):
        return getattr(self._call, name)

    def __aiter__(self):
        return self._iterator.__aiter__()


# Interceptors may ask whether they were given a call.
grpc.aio.UnaryStreamCall.register(_Iterated)
grpc.aio.StreamStreamCall.register(_Iterated)


class _Intercepted:
    """What intercepted calls of all kinds have."""

    # Of each kind: the interceptors' method, and the class of calls that they may give.
    _intercept: str
    _is_call: type

    def __init__(self, method, bridge, interceptors, details, request, compression):
        self._method = method
        self._loop = bridge.loop
        self._compression = compression
        self._made = None
        chains = method.channel.chains
        self._task = self._loop.create_task(self._run(interceptors, details, request))
        chains.add(self._task)
        # A chain that raises is not reported by asyncio where nobody awaits it.
        self._task.add_done_callback(_seen)
        self._task.add_done_callback(chains.discard)

    async def _run(self, interceptors, details, request):
        if not interceptors:
            self._made = self._method.begin_as(details, request, self._compression)
            return self._made
        continuation = functools.partial(self._run, interceptors[1:])
        answer = await getattr(interceptors[0], self._intercept)(continuation, details, request)
        return answer if isinstance(answer, self._is_call) else self._wrapped(answer)

    def _wrapped(self, answer):
        """What an interceptor gave that is no call."""
        return _Iterated(self._made, answer)

    def __del__(self):
        task = getattr(self, "_task", None)
        if task is not None and not task.done() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(task.cancel)

    def _call_now(self):
        """The chain's call, once it is there and nothing went wrong."""
        task = self._task
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

    def cancel(self) -> bool:
        if not self._task.done():
            return self._task.cancel()
        call = self._call_now()
        return call is not None and call.cancel()

    def cancelled(self) -> bool:
        task = self._task
        if not task.done() or task.cancelled():
            return task.done()
        error = task.exception()
        if error is not None:
            return isinstance(error, AioRpcError) and error.code() is grpc.StatusCode.CANCELLED
        return task.result().cancelled()

    def done(self) -> bool:
        call = self._call_now()
        return self._task.done() if call is None else call.done()

    def add_done_callback(self, callback) -> None:
        def chained(_):
            call = self._call_now()
            if call is None:
                callback(self)
            else:
                call.add_done_callback(lambda _: callback(self))

        if self._task.done():
            chained(None)
        else:
            self._task.add_done_callback(chained)

    def time_remaining(self):
        call = self._call_now() or self._made
        return None if call is None else call.time_remaining()

    async def _of_end(self, name, of_cancelled):
        """Something of the call's end, or of what the chain raised."""
        try:
            # Should this task be cancelled, the chain goes on.
            call = await asyncio.shield(self._task)
        except AioRpcError as error:
            return getattr(error, name)()
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise
            return of_cancelled
        return await getattr(call, name)()

    async def initial_metadata(self) -> Metadata:
        return await self._of_end("initial_metadata", None)

    async def trailing_metadata(self) -> Metadata:
        return await self._of_end("trailing_metadata", None)

    async def code(self) -> grpc.StatusCode:
        return await self._of_end("code", grpc.StatusCode.CANCELLED)

    async def details(self) -> str:
        return await self._of_end("details", _call.CANCELLED_HERE)

    async def debug_error_string(self) -> str:
        return await self._of_end("debug_error_string", "")

    async def wait_for_connection(self) -> None:
        call = await self._task
        await call.wait_for_connection()


def _seen(task):
    if not task.cancelled():
        task.exception()


class _UnaryAnswer(_Intercepted):
    """A call that is awaited."""

    def __await__(self):
        call = yield from self._task.__await__()
        return (yield from call.__await__())


class _AnswerStream(_Intercepted):
    """A call whose answers are read."""

    _iterator = None

    async def _all(self):
        call = await self._task
        async for answer in call:
            yield answer

    def __aiter__(self):
        if self._iterator is None:
            self._iterator = self._all()
        return self._iterator

    async def read(self):
        return await anext(self.__aiter__(), EOF)


class _Writes:
    """What is written to a call, as the iterator that interceptors see. One request waits in it at most."""

    def __init__(self, loop):
        self._loop = loop
        self._queue = asyncio.Queue(maxsize=1)

    def __aiter__(self):
        return self

    async def __anext__(self):
        request = await self._queue.get()
        if request is EOF:
            raise StopAsyncIteration
        return request

    async def put(self, request, call):
        """Puts a request, unless the call is over before."""
        putting = self._loop.create_task(self._queue.put(request))
        ending = self._loop.create_task(call.code())
        try:
            await asyncio.wait((putting, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
            ending.cancel()


class _RequestStream(_Intercepted):
    """A call whose requests are written, or taken from an iterator."""

    def __init__(self, method, bridge, interceptors, details, requests, compression):
        self._writes = None
        self._has_done_writing = False
        if requests is None:
            self._writes = requests = _Writes(bridge.loop)
        super().__init__(method, bridge, interceptors, details, requests, compression)

    async def _say(self, request):
        if self._writes is None:
            raise UsageError(_call.STYLES_MIXED)
        try:
            call = await asyncio.shield(self._task)
        except AioRpcError:
            raise asyncio.InvalidStateError(_call.FINISHED) from None
        except asyncio.CancelledError:
            if self._task.cancelled():
                raise asyncio.InvalidStateError(_call.FINISHED) from None
            self.cancel()
            raise
        if call.done():
            if request is EOF:
                return
            raise asyncio.InvalidStateError(_call.FINISHED)
        if self._has_done_writing:
            if request is EOF:
                return
            raise asyncio.InvalidStateError(_call.HALF_CLOSED)
        self._has_done_writing = request is EOF
        await self._writes.put(request, call)
        if call.done() and request is not EOF:
            raise asyncio.InvalidStateError(_call.FINISHED)

    async def write(self, request) -> None:
        await self._say(request)

    async def done_writing(self) -> None:
        await self._say(EOF)


class InterceptedUnaryUnaryCall(_UnaryAnswer, grpc.aio.UnaryUnaryCall):
    """A request and an answer."""

    _intercept = "intercept_unary_unary"
    _is_call = grpc.aio.UnaryUnaryCall

    def _wrapped(self, answer):
        return _AnsweredUnary(answer)


class InterceptedUnaryStreamCall(_AnswerStream, grpc.aio.UnaryStreamCall):
    """A request and a stream of answers."""

    _intercept = "intercept_unary_stream"
    _is_call = grpc.aio.UnaryStreamCall


class InterceptedStreamUnaryCall(_RequestStream, _UnaryAnswer, grpc.aio.StreamUnaryCall):
    """A stream of requests and an answer."""

    _intercept = "intercept_stream_unary"
    _is_call = grpc.aio.StreamUnaryCall

    def _wrapped(self, answer):
        return _AnsweredUnary(answer)


class InterceptedStreamStreamCall(_RequestStream, _AnswerStream, grpc.aio.StreamStreamCall):
    """Streams in both directions."""

    _intercept = "intercept_stream_stream"
    _is_call = grpc.aio.StreamStreamCall


KINDS = {
    _call.UnaryUnaryCall: InterceptedUnaryUnaryCall,
    _call.UnaryStreamCall: InterceptedUnaryStreamCall,
    _call.StreamUnaryCall: InterceptedStreamUnaryCall,
    _call.StreamStreamCall: InterceptedStreamStreamCall,
}
