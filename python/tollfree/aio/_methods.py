"""Multicallables: a channel's methods, as generated stubs call them."""

import time
from typing import Any

import grpc
from grpc.aio import Metadata

from tollfree import _arrays, _metadata
from tollfree._native import Buffer, Pieces
from tollfree.aio import _call, _intercepted
from tollfree.aio._client_state import ClientState


def _least(*limits):
    return min((limit for limit in limits if limit is not None), default=None)


class _Method:
    """What all calls of a method begin with."""

    # Of each kind: the class of its calls, and whether they take one request.
    _kind: type
    _is_unary: bool

    def __init__(self, channel, path, serialize, deserialize, interceptors):
        self.channel = channel
        self.deserialize = deserialize
        self._path = path.decode() if isinstance(path, bytes) else path
        self._serialize = serialize
        self._interceptors = interceptors
        terms = channel.config.terms(self._path)
        self._timeout = terms.timeout
        self._waits_for_ready = terms.waits_for_ready
        self._retry = terms.retry
        self._send_len_max = _least(terms.send_len_max, channel.send_len_max)
        self._receive_len_max = _least(terms.receive_len_max, channel.receive_len_max)

    def serialized(self, request, state):
        """A request's bytes, or what goes in their place; None: the call has failed, since they can't be had or sent."""
        try:
            data = request if self._serialize is None else self._serialize(request)
        except Exception as error:
            data = _arrays.placed(request)
            if data is None:
                state.fail(grpc.StatusCode.INTERNAL, f"Exception serializing request! {error}")
                return None
        if not isinstance(data, (bytes, Buffer, Pieces)):
            state.fail(grpc.StatusCode.INTERNAL, f"Exception serializing request! bytes were expected, not {type(data).__name__}")
            return None
        if self._send_len_max is not None and len(data) > self._send_len_max:
            words = f"Sent message larger than max ({len(data)} vs. {self._send_len_max})"
            state.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
            return None
        return data

    def _call(self, request, timeout, metadata, credentials, wait_for_ready, compression):
        """A call, or what interceptors make of it."""
        if not self._interceptors:
            return self._begin(request, timeout, metadata, credentials, wait_for_ready, compression)
        metadata = metadata if isinstance(metadata, Metadata) else Metadata(*(metadata or ()))
        details = grpc.aio.ClientCallDetails(self._path.encode(), timeout, metadata, credentials, wait_for_ready)
        bridge, _ = self.channel.open()
        return _intercepted.KINDS[self._kind](self, bridge, self._interceptors, details, request, compression)

    def begin_as(self, details, request, compression):
        """A call as interceptors want it, which may have changed its method."""
        method, path = self, details.method
        path = path.decode() if isinstance(path, bytes) else path
        if path != self._path:
            method = type(self)(self.channel, path, self._serialize, self.deserialize, ())
        credentials, wait_for_ready = getattr(details, "credentials", None), getattr(details, "wait_for_ready", None)
        return method._begin(request, details.timeout, details.metadata, credentials, wait_for_ready, compression)

    def _begin(self, request, timeout, metadata, credentials, wait_for_ready, compression):
        channel = self.channel
        bridge, number = channel.open()
        if self._timeout is not None:
            timeout = self._timeout if timeout is None else min(timeout, self._timeout)
        waits = self._waits_for_ready if wait_for_ready is None else bool(wait_for_ready)
        if compression is None:
            compression = channel.compression
        block, pairs = None, ()
        if metadata or compression is not None:
            pairs = [*(metadata or ()), *_metadata.encoding_pairs(compression)]
            # What is wrong with metadata is raised here.
            block = _metadata.pack(pairs)
        state = ClientState(bridge, channel.calls, self._receive_len_max, timeout)
        is_unary, data, compressed = self._is_unary, None, False
        if is_unary:
            data = self.serialized(request, state)
            if data is None:
                return self._kind(self, state)
            if compression is not None:
                data, compressed = _metadata.compress(data, compression)
        if credentials is not None:

            def start(more):
                left = None if state.deadline is None else state.deadline - time.monotonic()
                return bridge.native.start(number, self._path, data, _metadata.pack([*pairs, *more]), left, waits, compressed, self._retry)

            state.begin_with(credentials, self._path, timeout, start)
        else:
            state.begin(lambda: bridge.native.start(number, self._path, data, block, timeout, waits, compressed, self._retry))
        if is_unary:
            return self._kind(self, state)
        return self._kind(self, state, compression, request)


class _Unary(_Method):
    """Methods that take one request."""

    _is_unary = True

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Any | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.Call:
        return self._call(request, timeout, metadata, credentials, wait_for_ready, compression)


class _Stream(_Method):
    """Methods that take a stream of requests: an iterator, or what is written."""

    _is_unary = False

    def __call__(
        self,
        request_iterator: Any | None = None,
        timeout: float | None = None,
        metadata: Any | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.Call:
        return self._call(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)


class UnaryUnary(_Unary, grpc.aio.UnaryUnaryMultiCallable):
    """See the module."""

    _kind = _call.UnaryUnaryCall


class UnaryStream(_Unary, grpc.aio.UnaryStreamMultiCallable):
    """See the module."""

    _kind = _call.UnaryStreamCall


class StreamUnary(_Stream, grpc.aio.StreamUnaryMultiCallable):
    """See the module."""

    _kind = _call.StreamUnaryCall


class StreamStream(_Stream, grpc.aio.StreamStreamMultiCallable):
    """See the module."""

    _kind = _call.StreamStreamCall


_INTERCEPTORS = {
    UnaryUnary: grpc.aio.UnaryUnaryClientInterceptor,
    UnaryStream: grpc.aio.UnaryStreamClientInterceptor,
    StreamUnary: grpc.aio.StreamUnaryClientInterceptor,
    StreamStream: grpc.aio.StreamStreamClientInterceptor,
}


def sorted_by_kind(interceptors):
    """The interceptors of each kind of method."""
    interceptors = tuple(interceptors or ())
    for interceptor in interceptors:
        if not isinstance(interceptor, tuple(_INTERCEPTORS.values())):
            names = ", ".join(f"grpc.aio.{each.__name__}" for each in _INTERCEPTORS.values())
            raise ValueError(f"interceptor {interceptor!r} has to be one of {names}")
    return {kind: tuple(each for each in interceptors if isinstance(each, wanted)) for kind, wanted in _INTERCEPTORS.items()}
