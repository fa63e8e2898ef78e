"""Synchronous channels: `grpc.Channel` for generated stubs as they are."""

import threading
import time
import weakref

import grpc

from tollfree import _arrays, _call, _credentials, _metadata, _options, _process
from tollfree._native import Pieces

_STATES = (
    grpc.ChannelConnectivity.IDLE,
    grpc.ChannelConnectivity.CONNECTING,
    grpc.ChannelConnectivity.READY,
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
)


def insecure_channel(target, options=None, compression=None, pool=None):
    """A channel to a server on this host.

    Args:
      target: `shm:///path/of.sock` or `shm-abstract:name`; several with commas between make a channel over several servers.
      options: pairs `(name, value)` by grpcio's names. A name that says nothing over shared memory is logged.
      compression: a `grpc.Compression` for all calls, or None.
      pool: a `tollfree.Pool`, by which long messages go to servers that are members too; or None.

    Raises:
      ValueError: the target or an option can't be used; the message says why.

    The kernel tells each end who the other is, so that there is no secure variant. Any thread may use the channel. A child of fork
    may too, but not the calls that were under way.
    """
    return Channel(target, options, compression, pool)


_channel_closed = "Cannot invoke RPC on closed channel!"


def _same(message):
    return message


class _Method:
    """What all calls of a method begin with."""

    def __init__(self, channel, path, serialize, deserialize):
        self._channel = channel
        self._path = path.decode() if isinstance(path, bytes) else path
        self._serialize = serialize or _same
        self._deserialize = deserialize or _same
        terms = channel._config.terms(self._path)
        self._timeout = terms.timeout
        self._waits_for_ready = terms.waits_for_ready
        self._retry = terms.retry
        self._send_len_max = _least(terms.send_len_max, channel._send_len_max)
        self._receive_len_max = _least(terms.receive_len_max, channel._receive_len_max)
        self._is_plain = channel._compression is None and self._send_len_max is None
        # Of this process, or made anew in a child of fork.
        self._forks, self._native = -1, None

    def _method(self):
        if self._forks != _process.forks:
            self._native = self._channel._native_method(self._path, self._retry)
            self._forks = _process.forks
        return self._native

    def _serialized(self, request):
        try:
            data = self._serialize(request)
        except Exception as error:
            data = _arrays.placed(request)
            if data is None:
                raise _call.failed(grpc.StatusCode.INTERNAL, f"Exception serializing request! {error}") from error
        if self._send_len_max is not None and len(data) > self._send_len_max:
            raise _call.failed(grpc.StatusCode.RESOURCE_EXHAUSTED, f"Sent message larger than max ({len(data)} vs. {self._send_len_max})")
        return data

    def _time(self, timeout):
        return self._timeout if timeout is None else timeout if self._timeout is None else min(timeout, self._timeout)

    def _waits(self, wait_for_ready):
        return self._waits_for_ready if wait_for_ready is None else wait_for_ready

    def _block(self, metadata, credentials, compression, timeout):
        """What a call tells the server beside its messages, and its compression."""
        compression = self._channel._compression if compression is None else compression
        pairs = list(metadata) if metadata is not None else []
        try:
            if credentials is not None:
                pairs += _credentials.pairs_of(credentials, self._path, timeout)
            return _metadata.pack(pairs + _metadata.encoding_pairs(compression)), compression
        except _credentials.CredentialsError as error:
            raise _call.failed(error.code, error.details) from None

    def _start(self, data, compressed, block, timeout, wait_for_ready, is_streaming):
        timeout = self._time(timeout)
        native = self._method().start(data, block, timeout, self._waits(wait_for_ready), compressed)
        deadline = None if timeout is None else time.monotonic() + timeout
        return _call.ActiveCall(self._channel._client, native, self._deserialize, self._receive_len_max, deadline, is_streaming), native


def _least(*limits):
    return min((limit for limit in limits if limit is not None), default=None)


class _UnaryUnary(_Method, grpc.UnaryUnaryMultiCallable):
    def __call__(self, request, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None):
        if self._is_plain and metadata is None and credentials is None and compression is None:
            try:
                data = self._serialize(request)
            except Exception as error:
                data = _arrays.placed(request)
                if data is None:
                    raise _call.failed(grpc.StatusCode.INTERNAL, f"Exception serializing request! {error}") from error
            native = self._native if self._forks == _process.forks else self._method()
            if timeout is None and self._timeout is None and wait_for_ready is None:
                answer = native.unary(data, None, None, self._waits_for_ready)
            else:
                answer = native.unary(data, None, self._time(timeout), self._waits(wait_for_ready))
            if type(answer) is bytes or type(answer) is Pieces:
                try:
                    return _arrays.decoded(self._deserialize, answer)
                except Exception as error:
                    raise _undeserialized(error) from error
            # It has failed, or is compressed.
            return self._answered(answer)[0]
        return self._whole(request, timeout, metadata, credentials, wait_for_ready, compression)[0]

    def with_call(self, request, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None):
        return self._whole(request, timeout, metadata, credentials, wait_for_ready, compression)

    def _whole(self, request, timeout, metadata, credentials, wait_for_ready, compression):
        data = self._serialized(request)
        block, compression = self._block(metadata, credentials, compression, self._time(timeout))
        data, compressed = _metadata.compress(data, compression)
        answer = self._method().unary(data, block, self._time(timeout), self._waits(wait_for_ready), compressed, True)
        return self._answered(answer)

    def _answered(self, answer):
        """The message and the call of an answer, or what it raises."""
        code, message, headers, trailers = answer
        end = _call.ended(code, headers, trailers)
        if code != 0:
            if self._channel._is_closed:
                raise ValueError(_channel_closed)
            raise _call.InactiveError(end)
        if message is None:
            end.code, end.details = grpc.StatusCode.INTERNAL, "the server answered a unary call with no message or several"
            raise _call.InactiveError(end)
        try:
            data = _metadata.decompress(message, _metadata.unpack(headers), self._receive_len_max)
        except _metadata.Undecodable as error:
            end.code, end.details = error.code, error.details
            raise _call.InactiveError(end) from None
        try:
            return _arrays.decoded(self._deserialize, data), _call.InactiveCall(end)
        except Exception as error:
            raise _undeserialized(error) from error

    def future(self, request, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None):
        try:
            data = self._serialized(request)
            block, compression = self._block(metadata, credentials, compression, self._time(timeout))
        except _call.InactiveError as error:
            return error
        data, compressed = _metadata.compress(data, compression)
        return self._start(data, compressed, block, timeout, wait_for_ready, False)[0]


def _undeserialized(error):
    return _call.failed(grpc.StatusCode.INTERNAL, f"Exception deserializing response! {error}")


class _UnaryStream(_Method, grpc.UnaryStreamMultiCallable):
    def __call__(self, request, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None):
        data = self._serialized(request)
        block, compression = self._block(metadata, credentials, compression, self._time(timeout))
        data, compressed = _metadata.compress(data, compression)
        return self._start(data, compressed, block, timeout, wait_for_ready, True)[0]


class _Streaming(_Method):
    def _begin(self, requests, timeout, metadata, credentials, wait_for_ready, compression, is_streaming):
        block, compression = self._block(metadata, credentials, compression, self._time(timeout))
        call, native = self._start(None, False, block, timeout, wait_for_ready, is_streaming)
        sent = (call, native, requests, self._serialize, compression, self._send_len_max)
        if isinstance(requests, (list, tuple)) and not is_streaming:
            # Nothing of the iterator's can wait for the answer.
            _call.send_all(*sent)
        else:
            threading.Thread(target=_call.send_all, args=sent, name="tollfree-requests", daemon=True).start()
        return call


class _StreamUnary(_Streaming, grpc.StreamUnaryMultiCallable):
    def __call__(self, request_iterator, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None):
        return self.with_call(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)[0]

    def with_call(self, request_iterator, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None):
        call = self.future(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)
        call._wait(None)
        if call.code() is not _metadata.OK:
            raise call
        return call._unary(), call

    def future(self, request_iterator, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None):
        return self._begin(request_iterator, timeout, metadata, credentials, wait_for_ready, compression, False)


class _StreamStream(_Streaming, grpc.StreamStreamMultiCallable):
    def __call__(self, request_iterator, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None):
        return self._begin(request_iterator, timeout, metadata, credentials, wait_for_ready, compression, True)


class Channel(grpc.Channel):
    """See `insecure_channel`."""

    def __init__(self, target, options, compression, pool):
        self._targets = _options.targets_of(target)
        given = _options.Options(options, "channel")
        self._compression = given.compression(compression)
        if self._compression is grpc.Compression.NoCompression:
            self._compression = None
        self._send_len_max = given.length("grpc.max_send_message_length", None)
        self._receive_len_max = given.length("grpc.max_receive_message_length", _options.RECEIVE_LEN_MAX)
        self._metadata_len_max = given.length("grpc.max_metadata_size", None)
        agents = (given.text("grpc.primary_user_agent"), _process.AGENT, given.text("grpc.secondary_user_agent"))
        self._agent = " ".join(agent for agent in agents if agent)
        self._config = _options.ServiceConfig(given.text("grpc.service_config"), given.are_retries_on())
        self._pool = pool
        self._lock = threading.Lock()
        self._is_closed = False
        self._watchers = []
        self._forks = -1
        self._client = self._number = None
        # What is wrong with an address is told here, and not at the first call.
        self._open()

    def _open(self):
        """This process's client, and the channel's number there."""
        if self._is_closed:
            raise ValueError(_channel_closed)
        if self._forks != _process.forks:
            if self._forks != -1:
                # The parent's, which another thread of the parent's may have held.
                self._lock = threading.Lock()
            with self._lock:
                limit = _limit(self._receive_len_max)
                self._client = _process.client(self._agent, limit, self._metadata_len_max, self._pool)
                self._number = self._client.native.open(self._targets, *self._config.of_channel())
                self._forks = _process.forks
                self._finalizer = weakref.finalize(self, _leave, self._client, self._number, self._forks)
                self._finalizer.atexit = False
        return self._client, self._number

    def _native_method(self, path, retry):
        client, number = self._open()
        return client.native.method(number, path, retry)

    def unary_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return _UnaryUnary(self, method, request_serializer, response_deserializer)

    def unary_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return _UnaryStream(self, method, request_serializer, response_deserializer)

    def stream_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return _StreamUnary(self, method, request_serializer, response_deserializer)

    def stream_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return _StreamStream(self, method, request_serializer, response_deserializer)

    # Connectivity.

    def subscribe(self, callback, try_to_connect=False):
        client, number = self._open()
        with self._lock:
            self._watchers.append(callback)
            is_first = len(self._watchers) == 1
        if is_first:
            channel = weakref.ref(self)
            client.watch(number, lambda state: _told(channel, state))
        callback(_STATES[client.native.state(number) or 0])
        if try_to_connect:
            client.native.connect(number)

    def unsubscribe(self, callback):
        with self._lock:
            if callback in self._watchers:
                self._watchers.remove(callback)

    def _changed(self, state):
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            _process.logged(watcher, _STATES[state])

    def payloads(self):
        """What became of long messages, by name: how many went and came by reference, and why others did not.

        Channels with the same pool and limits count together.
        """
        return dict(self._open()[0].native.payloads())

    # The end.

    def close(self):
        with self._lock:
            self._is_closed = True
            self._watchers.clear()
        if self._client is not None and self._forks == _process.forks:
            self._client.watch(self._number, None)
            self._finalizer()

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.close()
        return False


def _limit(length):
    # A message's length is said in four bytes.
    return 0xFFFFFFFF if length is None else length


def _told(channel, state):
    channel = channel()
    if channel is not None:
        channel._changed(state)


def _leave(client, number, forks):
    """Nobody needs a channel any more."""
    if forks == _process.forks:
        client.native.close_channel(number)
        _process.leave(client)
