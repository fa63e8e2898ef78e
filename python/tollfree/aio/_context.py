"""What a handler of an asyncio server is given beside the request."""

import asyncio
import functools
import logging

import grpc
from grpc.aio import EOF, AbortError, UsageError

from tollfree import _arrays, _metadata, _native

_LOGGER = logging.getLogger("tollfree")

# What `auth_context` says of the peer: the kernel knows who it is.
_SECURITY = {"transport_security_type": [b"local"], "security_level": [b"TSI_PRIVACY_AND_INTEGRITY"]}
_FINISHED = "RPC already finished."
# A thread that waits for the asyncio loop looks so often, in seconds, whether there still is one.
_LOOP_EVERY = 0.5


class Failed(Exception):
    """A call ends with this code and message."""

    def __init__(self, code, details):
        super().__init__(details)
        self.code, self.details = code, details


class Context(grpc.aio.ServicerContext):
    """A `grpc.aio.ServicerContext`. Only the thread of the asyncio loop may use it."""

    def __init__(self, server, state, path, block, deadline_ns, session):
        self.path = path
        self.state = state
        self.abortion = None
        self._server = server
        self._block = block
        self._deadline_ns = deadline_ns
        self._session = session
        self._handler = None
        self._metadata = None
        self._are_headers_sent = False
        self._trailers = ()
        self._code = None
        self._details = ""
        self._compression = server.compression
        self._is_next_plain = False
        self._callbacks = []

    def is_for(self, handler):
        """The handler, with what it makes of messages, was found."""
        self._handler = handler

    # What came.

    def pairs(self):
        if self._metadata is None:
            self._metadata = _metadata.unpack(self._block)
        return self._metadata

    def invocation_metadata(self):
        return _metadata.visible(self.pairs())

    def time_remaining(self):
        if self._deadline_ns is None:
            return None
        return max(self._deadline_ns - _native.now_ns(), 0) / 1e9

    def peer(self) -> str:
        """`unix:` with process id, user id and group id of the caller, as the kernel says."""
        peer = self._server.peer(self._session)
        return "unix:" if peer is None else f"unix:pid={peer[0]},uid={peer[1]},gid={peer[2]}"

    def peer_identities(self):
        peer = self._server.peer(self._session)
        return None if peer is None else [str(peer[1]).encode()]

    def peer_identity_key(self):
        return "uid"

    def auth_context(self):
        peer = self._server.peer(self._session)
        if peer is None:
            return dict(_SECURITY)
        return {**_SECURITY, **{name: [str(value).encode()] for name, value in zip(("pid", "uid", "gid"), peer, strict=True)}}

    def request(self, message):
        """A message as the handler takes it."""
        try:
            if type(message) is tuple:
                message = _metadata.decompress(message, self.pairs(), self._server.receive_len_max)
            return _arrays.decoded(_arrays.request_deserializer(self._handler, self.path), message)
        except _metadata.Undecodable as error:
            raise Failed(error.code, error.details) from None
        except Exception as error:
            _LOGGER.exception("Exception deserializing request of %s", self.path)
            raise Failed(grpc.StatusCode.INTERNAL, "Exception deserializing request!") from error

    async def read(self):
        """The next request, or `grpc.aio.EOF`."""
        self.check()
        state = self.state
        while True:
            await state.until(state.can_read)
            self.check()
            message = state.next_message()
            if message is not None:
                return self.request(message)
            # Another task may have taken what this one was woken for.
            if state.is_half_closed:
                return EOF

    # The answer.

    def check(self):
        """Raises if the handler may not go on: it has aborted the call, or that is over."""
        if self.abortion is not None:
            raise self.abortion
        if self.state.is_over:
            raise UsageError(_FINISHED)

    def response(self, response):
        """A handler's message as it goes out, and whether it is compressed."""
        try:
            serialize = self._handler.response_serializer
            data = serialize(response) if serialize else response
        except Exception as error:
            data = _arrays.placed(response)
            if data is None:
                _LOGGER.exception("Exception serializing response of %s", self.path)
                raise Failed(grpc.StatusCode.INTERNAL, "Failed to serialize response!") from error
        if not isinstance(data, (bytes, _native.Buffer, _native.Pieces)):
            raise Failed(grpc.StatusCode.INTERNAL, f"Failed to serialize response! bytes were expected, not {type(data).__name__}")
        most = self._server.send_len_max
        if most is not None and len(data) > most:
            raise Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, f"Sent message larger than max ({len(data)} vs. {most})")
        is_plain, self._is_next_plain = self._is_next_plain, False
        if self._compression is None or is_plain:
            return data, False
        return _metadata.compress(data, self._compression)

    def headers(self, pairs=()):
        """The block of the answer's headers, the first time; then None."""
        if self._are_headers_sent:
            return None
        pairs = [*pairs, *_metadata.encoding_pairs(self._compression)]
        block = _metadata.pack(pairs) if pairs else b""
        self._are_headers_sent = True
        return block

    async def write(self, message) -> None:
        """Sends a response. Waits while those before are not on their way."""
        self.check()
        data, compressed = self.response(message)
        state = self.state
        state.served.answer(self.headers(), data, compressed)
        state.said(len(data))
        await state.until(state.may_say)

    async def send_initial_metadata(self, initial_metadata) -> None:
        self.check()
        if self._are_headers_sent:
            raise UsageError("Send initial metadata failed: already sent")
        self.state.served.answer(self.headers(initial_metadata))
        self.state.bridge.touched()

    def set_compression(self, compression: grpc.Compression) -> None:
        if self._are_headers_sent:
            raise RuntimeError("Compression setting must be specified before sending initial metadata")
        self._compression = None if compression is grpc.Compression.NoCompression else compression

    def disable_next_message_compression(self) -> None:
        self._is_next_plain = True

    # The status.

    def set_trailing_metadata(self, trailing_metadata) -> None:
        pairs = tuple(trailing_metadata)
        # What is wrong with them is raised here.
        _metadata.pack(pairs)
        self._trailers = pairs

    def trailing_metadata(self):
        return self._trailers

    def set_code(self, code) -> None:
        self._code = code

    def code(self):
        return self._code

    def set_details(self, details: str) -> None:
        self._details = details

    def details(self):
        return self._details

    def _number(self):
        code = self._code
        if code is None:
            return 0
        # As grpcio has it, what is no code is UNKNOWN.
        return _metadata.code_of(code if isinstance(code, int) else getattr(code, "value", (2,))[0]).value[0]

    def succeeds(self):
        """Whether the handler has set no code but OK."""
        return self._number() == 0

    def finish(self, headers=None, data=None, compressed=False):
        """Ends the call with the status that was set."""
        number, details = self._number(), self._details
        trailers = b""
        if details or self._trailers:
            trailers = _metadata.pack([*([_metadata.message_pair(details)] if details else ()), *self._trailers])
        self.state.answer_end(number, trailers, headers, data, compressed)

    def fail(self, code, details):
        """Ends the call with another status."""
        self._code, self._details = code, details
        self.finish()

    async def abort(self, code, details: str = "", trailing_metadata=()):
        """Ends the call with a status at once, by an exception that the handler must let pass."""
        if self.abortion is not None:
            raise UsageError("Abort already called!")
        if trailing_metadata:
            self.set_trailing_metadata(trailing_metadata)
        self.abortion = AbortError("Locally aborted.")
        if code is grpc.StatusCode.OK or code == 0:
            _LOGGER.error("abort() of %s was called with StatusCode.OK: UNKNOWN is sent", self.path)
            code = grpc.StatusCode.UNKNOWN
        self._code = code
        self._details = details or self._details
        self.finish()
        raise self.abortion

    async def abort_with_status(self, status: grpc.Status):
        await self.abort(status.code, status.details, tuple(status.trailing_metadata or ()))

    # How it stands.

    def add_done_callback(self, callback) -> None:
        self._callbacks.append(functools.partial(callback, self))

    def is_handled(self):
        """The call's task has ended: callbacks are called."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _LOGGER.exception("a callback of a call of %s has failed", self.path)

    def cancelled(self) -> bool:
        return self.state.is_cancelled

    def done(self) -> bool:
        return self.state.is_over


class SyncContext(grpc.ServicerContext):
    """A `grpc.ServicerContext` for a handler that runs in a thread."""

    def __init__(self, context):
        self._context = context
        self._loop = context.state.bridge.loop
        self.callbacks = []

    def _wait_for(self, coroutine):
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            # The loop was closed.
            coroutine.close()
            raise
        while True:
            try:
                return future.result(_LOOP_EVERY)
            except TimeoutError:
                if future.done():
                    raise
                if self._loop.is_closed():
                    raise RuntimeError("the event loop was closed") from None

    def is_active(self):
        return not self._context.state.is_over

    def cancel(self):
        self._loop.call_soon_threadsafe(self._context.state.abort, grpc.StatusCode.CANCELLED, "the handler has cancelled the call")

    def add_callback(self, callback):
        if self._context.state.is_over:
            return False
        self.callbacks.append(callback)
        return True

    def abort(self, code, details, trailing_metadata=()):
        self._wait_for(self._context.abort(code, details, trailing_metadata))

    def abort_with_status(self, status):
        self._wait_for(self._context.abort_with_status(status))

    def send_initial_metadata(self, initial_metadata):
        self._wait_for(self._context.send_initial_metadata(initial_metadata))

    def write(self, message):
        """Sends a response, from the handler's thread."""
        self._wait_for(self._context.write(message))

    def read(self):
        """The next request, or `grpc.aio.EOF`."""
        return self._wait_for(self._context.read())

    def invocation_metadata(self):
        return self._context.invocation_metadata()

    def peer(self):
        return self._context.peer()

    def peer_identities(self):
        return self._context.peer_identities()

    def peer_identity_key(self):
        return self._context.peer_identity_key()

    def auth_context(self):
        return self._context.auth_context()

    def time_remaining(self):
        return self._context.time_remaining()

    def set_compression(self, compression):
        self._context.set_compression(compression)

    def disable_next_message_compression(self):
        self._context.disable_next_message_compression()

    def set_trailing_metadata(self, trailing_metadata):
        self._context.set_trailing_metadata(trailing_metadata)

    def trailing_metadata(self):
        return self._context.trailing_metadata()

    def set_code(self, code):
        self._context.set_code(code)

    def code(self):
        return self._context.code()

    def set_details(self, details):
        self._context.set_details(details)

    def details(self):
        return self._context.details()
