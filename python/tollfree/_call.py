"""Calls of synchronous channels: what a caller holds while a call is under way, and what it raises when the call has failed."""

import threading
import time

import grpc

from tollfree import _arrays, _metadata

CANCELLED = grpc.StatusCode.CANCELLED


class _Ended:
    """How a call has ended: the parts that grpc.Call shows."""

    def __init__(self, code, details, headers=(), trailers=()):
        self.code, self.details = code, details
        self.headers, self.trailers = headers, trailers


def ended(code, headers, trailers):
    """Of a code and blocks of metadata."""
    pairs = _metadata.unpack(trailers)
    code = _metadata.code_of(code)
    details = _metadata.details_of(pairs)
    return _Ended(code, details, _metadata.visible(_metadata.unpack(headers)), _metadata.visible(pairs))


class InactiveCall(grpc.Call):
    """A call that is over, beside its answer (`with_call`)."""

    def __init__(self, end):
        self._end = end

    def initial_metadata(self):
        return self._end.headers

    def trailing_metadata(self):
        return self._end.trailers

    def code(self):
        return self._end.code

    def details(self):
        return self._end.details

    def is_active(self):
        return False

    def time_remaining(self):
        return None

    def cancel(self):
        return False

    def add_callback(self, callback):
        return False


class InactiveError(grpc.RpcError, InactiveCall, grpc.Future):
    """A call that has failed, as it is raised."""

    def __init__(self, end):
        super().__init__()
        self._end = end

    def __str__(self):
        return f"<{type(self).__name__} of RPC that terminated with: {self._end.code}, details {self._end.details!r}>"

    __repr__ = __str__

    def debug_error_string(self):
        return str(self)

    def cancelled(self):
        return self._end.code is CANCELLED

    def running(self):
        return False

    def done(self):
        return True

    def result(self, timeout=None):
        raise self

    def exception(self, timeout=None):
        return self

    def traceback(self, timeout=None):
        return self.__traceback__

    def add_done_callback(self, fn):
        fn(self)


def failed(code, details):
    """A call that failed before it was made."""
    return InactiveError(_Ended(code, details))


class ActiveCall(grpc.RpcError, grpc.Call, grpc.Future):
    """A call under way: a grpc.Call, a future of its answer or an iterator of its answers, and what is raised when it fails."""

    def __init__(self, client, native, deserialize, receive_len_max, deadline, is_streaming):
        super().__init__()
        self._client = client
        self._native = native
        self._deserialize = deserialize
        self._receive_len_max = receive_len_max
        self._deadline = deadline
        self._is_streaming = is_streaming
        self._lock = threading.Lock()
        self._end = None
        self._headers = None
        # A unary answer, once it was read: a tuple of it.
        self._answer = None

    # The end.

    def _headers_now(self):
        if self._headers is None:
            self._headers = _metadata.unpack(self._native.headers())
        return self._headers

    def _conclude(self, timeout=None):
        """How the call has ended; waits for that. None: the time is over."""
        if self._end is None:
            status = self._native.status(timeout)
            if status is None:
                return None
            end = ended(status[0], None, status[1])
            end.headers = _metadata.visible(self._headers_now())
            with self._lock:
                if self._end is None:
                    self._end = end
        return self._end

    def _fail(self, code, details):
        """Ends the call here, unless it is over."""
        self._native.cancel(code.value[0], _metadata.pack([_metadata.message_pair(details)]))

    def initial_metadata(self):
        return _metadata.visible(self._headers_now())

    def trailing_metadata(self):
        return self._conclude().trailers

    def code(self):
        return self._conclude().code

    def details(self):
        return self._conclude().details

    def debug_error_string(self):
        return str(self)

    def __str__(self):
        if not self._native.is_over():
            return f"<{type(self).__name__} object of in-flight RPC>"
        end = self._conclude()
        return f"<{type(self).__name__} of RPC that terminated with: {end.code}, details {end.details!r}>"

    __repr__ = __str__

    def is_active(self):
        return not self._native.is_over()

    def time_remaining(self):
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0)

    def add_callback(self, callback):
        if self._native.is_over():
            return False
        self._client.when_over(self._native, callback)
        return True

    def cancel(self):
        self._fail(CANCELLED, "Locally cancelled by application!")
        return False

    # A message.

    def _decoded(self, message):
        try:
            data = _metadata.decompress(message, self._headers_now() if type(message) is tuple else (), self._receive_len_max)
        except _metadata.Undecodable as error:
            self._fail(error.code, error.details)
            raise self from None
        try:
            return _arrays.decoded(self._deserialize, data)
        except Exception as error:
            self._fail(grpc.StatusCode.INTERNAL, f"Exception deserializing response! {error}")
            raise self from error

    # An iterator of answers.

    def __iter__(self):
        return self

    def __next__(self):
        return self._next()

    def next(self):
        return self._next()

    def _next(self):
        message = self._native.receive()
        if message is not None:
            return self._decoded(message)
        if self._conclude().code is _metadata.OK:
            raise StopIteration
        raise self

    # A future.

    def cancelled(self):
        return self._native.is_over() and self._conclude().code is CANCELLED

    def running(self):
        return not self._native.is_over()

    def done(self):
        return self._native.is_over()

    def _wait(self, timeout):
        if self._conclude(timeout) is None:
            raise grpc.FutureTimeoutError()

    def result(self, timeout=None):
        self._wait(timeout)
        if self._end.code is CANCELLED:
            raise grpc.FutureCancelledError()
        if self._end.code is not _metadata.OK:
            raise self
        return self._unary()

    def _unary(self):
        """The only answer of a call that has succeeded."""
        if self._is_streaming:
            # As grpcio has it: an iterator's result is itself.
            return self
        with self._lock:
            if self._answer is None:
                message = self._native.receive()
                if message is None or self._native.receive() is not None:
                    self._end = _Ended(
                        grpc.StatusCode.INTERNAL,
                        "the server answered a unary call with no message or several",
                        self._end.headers,
                        self._end.trailers,
                    )
                else:
                    self._answer = (message,)
        if self._answer is None:
            raise self
        return self._decoded(self._answer[0])

    def exception(self, timeout=None):
        self._wait(timeout)
        if self._end.code is CANCELLED:
            raise grpc.FutureCancelledError()
        return None if self._end.code is _metadata.OK else self

    def traceback(self, timeout=None):
        error = self.exception(timeout)
        return None if error is None else error.__traceback__

    def add_done_callback(self, fn):
        self._client.when_over(self._native, lambda: fn(self))


def send_all(call, native, requests, serialize, compression, send_len_max):
    """Says all requests of an iterator; the call ends where that fails."""
    try:
        for request in requests:
            try:
                data = serialize(request)
            except Exception as error:
                data = _arrays.placed(request)
                if data is None:
                    call._fail(grpc.StatusCode.INTERNAL, f"Exception serializing request! {error}")
                    return
            if send_len_max is not None and len(data) > send_len_max:
                call._fail(grpc.StatusCode.RESOURCE_EXHAUSTED, f"Sent message larger than max ({len(data)} vs. {send_len_max})")
                return
            data, compressed = _metadata.compress(data, compression)
            if not native.send(data, compressed):
                return
        native.finish()
    except RuntimeError:
        # A child of fork: the call is its parent's.
        raise
    except Exception as error:
        call._fail(grpc.StatusCode.UNKNOWN, f"Exception iterating requests! {error}")
