"""Calls of asyncio channels: what a caller awaits, reads, writes and cancels."""

import asyncio
import collections.abc
import enum
import functools
import logging
import time

import grpc
from grpc.aio import EOF, AioRpcError, Metadata, UsageError

from tollfree import _arrays, _metadata

_LOGGER = logging.getLogger("tollfree")

CANCELLED_HERE = "Locally cancelled by application!"
_CANCELLED_BY_COLLECTION = "Cancelled upon garbage collection!"
FINISHED = "RPC already finished."
HALF_CLOSED = 'RPC is half closed after calling "done_writing".'
STYLES_MIXED = "The iterator and read/write APIs may not be mixed on a single RPC."


class _Style(enum.Enum):
    """How a program uses a stream."""

    UNKNOWN = 0
    ITERATOR = 1
    READ_WRITE = 2


class _Call:
    """What calls of all kinds have."""

    def __init__(self, method, state):
        # The method keeps the channel open while its calls are under way.
        self._method = method
        self._state = state

    def __del__(self):
        state = getattr(self, "_state", None)
        if state is not None and not state.is_over:
            state.cancel_from_any_thread(_CANCELLED_BY_COLLECTION)

    def cancel(self) -> bool:
        return self._state.cancel(CANCELLED_HERE)

    def cancelled(self) -> bool:
        return self._state.is_over and self._state.code == grpc.StatusCode.CANCELLED.value[0]

    def done(self) -> bool:
        return self._state.is_over

    def add_done_callback(self, callback) -> None:
        self._state.when_over(functools.partial(callback, self))

    def time_remaining(self):
        deadline = self._state.deadline
        return None if deadline is None else max(deadline - time.monotonic(), 0.0)

    async def initial_metadata(self) -> Metadata:
        await self._state.until(self._state.has_headers)
        return self._headers_now()

    async def trailing_metadata(self) -> Metadata:
        await self._state.until(self._state.has_ended)
        return self._trailers_now()

    async def code(self) -> grpc.StatusCode:
        await self._state.until(self._state.has_ended)
        return _metadata.code_of(self._state.code)

    async def details(self) -> str:
        await self._state.until(self._state.has_ended)
        return self._state.details()

    async def debug_error_string(self) -> str:
        await self._state.until(self._state.has_ended)
        return self._debug_now()

    async def wait_for_connection(self) -> None:
        """Waits until the channel is connected; raises what a call raises that has failed."""
        state, channel = self._state, self._method.channel
        await state.until(lambda: state.is_over or channel.is_ready())
        if state.is_over:
            self._raise_for_status()

    def _headers_now(self):
        return Metadata(*_metadata.visible(self._state.headers()))

    def _trailers_now(self):
        return Metadata(*_metadata.visible(self._state.trailers()))

    def _debug_now(self):
        return f"{_metadata.code_of(self._state.code).name}: {self._state.details()}"

    def _raise_for_status(self):
        """Raises what a call that is over raises, unless it has succeeded."""
        state = self._state
        if state.is_cancelled_here:
            raise asyncio.CancelledError()
        if state.code != 0:
            raise AioRpcError(_metadata.code_of(state.code), self._headers_now(), self._trailers_now(), state.details(), self._debug_now())

    def _decoded(self, message):
        """A message as the program takes it; raises where it can't be."""
        data = self._state.decompressed(message)
        if data is None:
            self._raise_for_status()
        deserialize = self._method.deserialize
        if deserialize is None:
            return bytes(data)
        try:
            return _arrays.decoded(deserialize, data)
        except Exception as error:
            self._state.fail(grpc.StatusCode.INTERNAL, f"Exception deserializing response! {error}")
            self._raise_for_status()
            raise

    def __repr__(self) -> str:
        name = type(self).__name__
        if not self._state.is_over:
            return f"<{name} of RPC that is under way>"
        return f"<{name} of RPC that terminated with: {_metadata.code_of(self._state.code)}, details {self._state.details()!r}>"


class _UnaryAnswer(_Call):
    """A call that is awaited."""

    def __init__(self, method, state):
        super().__init__(method, state)
        self._answer = None

    def __await__(self):
        state = self._state
        try:
            if not state.is_over:
                # The answer of a quick server is here before this task could be suspended.
                bridge = state.bridge
                while bridge.look() and not state.is_over:
                    pass
                if not state.is_over:
                    yield from state.until(state.has_ended).__await__()
                elif bridge.owes_turn():
                    yield
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._answered()

    def _answered(self):
        state = self._state
        if self._answer is None:
            if state.code != 0 or state.is_cancelled_here:
                self._raise_for_status()
            if len(state.messages) != 1:
                state.fail(grpc.StatusCode.INTERNAL, "the server answered a unary call with no message or several")
                self._raise_for_status()
            self._answer = (self._decoded(state.next_message()),)
        return self._answer[0]


class _AnswerStream(_Call):
    """A call whose answers are read."""

    def __init__(self, method, state):
        super().__init__(method, state)
        self._reading_style = _Style.UNKNOWN

    def _reads_by(self, style):
        if self._reading_style is _Style.UNKNOWN:
            self._reading_style = style
        elif self._reading_style is not style:
            raise UsageError(STYLES_MIXED)

    async def _read(self):
        state = self._state
        message = None
        try:
            # Another task may have taken what this one was woken for.
            while message is None and (state.messages or not state.is_over):
                await state.until(state.can_read)
                message = state.next_message()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if message is None:
            self._raise_for_status()
            return EOF
        return self._decoded(message)

    async def read(self):
        self._reads_by(_Style.READ_WRITE)
        return await self._read()

    def __aiter__(self):
        self._reads_by(_Style.ITERATOR)
        return self._all()

    async def _all(self):
        while (message := await self._read()) is not EOF:
            yield message


class _RequestStream(_Call):
    """A call whose requests are written, or taken from an iterator."""

    def __init__(self, method, state, compression, requests):
        super().__init__(method, state)
        self._compression = compression
        self._has_done_writing = False
        self._poller = None
        if requests is not None:
            self._poller = state.bridge.loop.create_task(self._send_all(requests))
            state.when_over(self._poller.cancel)

    async def _send_all(self, requests):
        try:
            if isinstance(requests, collections.abc.AsyncIterable):
                async for request in requests:
                    await self._write(request)
            else:
                for request in requests:
                    await self._write(request)
            await self._done_writing()
        except asyncio.CancelledError:
            self.cancel()
            raise
        except (AioRpcError, asyncio.InvalidStateError) as error:
            # Where the call is over, its status says why.
            if not self._state.is_over:
                self._fails_to_send(error)
        except Exception as error:
            self._fails_to_send(error)

    def _fails_to_send(self, error):
        _LOGGER.error("a call ends since its iterator of requests has raised", exc_info=error)
        self.cancel()

    def _check_style(self):
        if self._poller is not None:
            raise UsageError(STYLES_MIXED)

    async def _write(self, request):
        state = self._state
        if state.is_over:
            raise asyncio.InvalidStateError(FINISHED)
        if self._has_done_writing:
            raise asyncio.InvalidStateError(HALF_CLOSED)
        try:
            if state.served is None:
                await state.until(state.has_begun)
            data = None if state.is_over else self._method.serialized(request, state)
            if data is None:
                self._raise_for_status()
                raise asyncio.InvalidStateError(FINISHED)
            data, compressed = _metadata.compress(data, self._compression)
            state.served.send(data, compressed)
            state.said(len(data))
            await state.until(state.may_say)
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def _done_writing(self):
        state = self._state
        if self._has_done_writing or state.is_over:
            return
        self._has_done_writing = True
        try:
            if state.served is None:
                await state.until(state.has_begun)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if not state.is_over:
            state.served.finish()
            state.bridge.touched()

    async def write(self, request) -> None:
        self._check_style()
        await self._write(request)

    async def done_writing(self) -> None:
        self._check_style()
        await self._done_writing()


class UnaryUnaryCall(_UnaryAnswer, grpc.aio.UnaryUnaryCall):
    """A request and an answer."""


class UnaryStreamCall(_AnswerStream, grpc.aio.UnaryStreamCall):
    """A request and a stream of answers."""


class StreamUnaryCall(_RequestStream, _UnaryAnswer, grpc.aio.StreamUnaryCall):
    """A stream of requests and an answer."""


class StreamStreamCall(_RequestStream, _AnswerStream, grpc.aio.StreamStreamCall):
    """Streams in both directions."""
