"""A server's calls: which handler takes them, where it runs, and what goes back."""

import logging
import threading

import grpc

from tollfree import _arrays, _events, _metadata
from tollfree._context import Abort, Context

_LOGGER = logging.getLogger("tollfree")


class Details(grpc.HandlerCallDetails):
    def __init__(self, method, invocation_metadata):
        self.method = method
        self.invocation_metadata = invocation_metadata


class Methods:
    """Handlers by path, behind interceptors."""

    def __init__(self, generic_handlers, interceptors):
        self._generic = list(generic_handlers or ())
        self._registered = {}
        self._services = set()
        self._interceptors = tuple(interceptors or ())

    def add_generic(self, handlers):
        self._generic.extend(handlers)

    def add_registered(self, service, handlers):
        self._services.add(service)
        for name, handler in handlers.items():
            self._registered[f"/{service}/{name}"] = handler

    def services(self):
        """Names of the services that are known by name."""
        named = {handler.service_name() for handler in self._generic if isinstance(handler, grpc.ServiceRpcHandler)}
        return sorted(self._services | named)

    def _find(self, details):
        handler = self._registered.get(details.method)
        if handler is not None:
            return handler
        for generic in self._generic:
            handler = generic.service(details)
            if handler is not None:
                return handler
        return None

    def is_plain(self):
        """Whether a handler may be found without a look at the metadata."""
        return not self._interceptors

    def registered(self, path):
        return self._registered.get(path)

    def find(self, path, pairs):
        """The handler of a call, or None; interceptors and generic handlers may raise."""
        details = Details(path, pairs)
        continuation = self._find
        for interceptor in reversed(self._interceptors):
            continuation = _before(interceptor, continuation)
        return continuation(details)


def _before(interceptor, continuation):
    return lambda details: interceptor.intercept_service(continuation, details)


class Calls:
    """The calls of a server that are under way."""

    def __init__(self, most):
        self._most = most
        self._lock = threading.Lock()
        self._contexts = {}
        self._when_none = None
        self._is_closed = False

    def begin(self, context):
        """A call begins. False: there are as many as may be."""
        with self._lock:
            if self._is_closed or (self._most is not None and len(self._contexts) >= self._most):
                return False
            self._contexts[context._served.number] = context
            return True

    def end(self, context):
        with self._lock:
            self._contexts.pop(context._served.number, None)
            call = self._when_none if not self._contexts else None
        if call is not None:
            call()

    def cancelled(self, number):
        """A call was cancelled by its client, or its session is over."""
        with self._lock:
            context = self._contexts.get(number)
        if context is not None:
            context._ends()

    def count(self):
        with self._lock:
            return len(self._contexts)

    def when_none(self, callback):
        """Has a callback called whenever none is left."""
        with self._lock:
            self._when_none = callback

    def _take(self):
        with self._lock:
            contexts, self._contexts = list(self._contexts.values()), {}
        return contexts

    def cancel_all(self):
        for context in self._take():
            context.cancel()

    def close(self):
        self._is_closed = True
        for context in self._take():
            context._ends()


def begin(server, event):
    """Takes a call that has come. Whether it was handled here, and is over."""
    _, served, path, block, deadline_ns, session = event[:6]
    context = Context(server, served, path, block, deadline_ns, session)
    if not server._calls.begin(context):
        served.answer(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], trailers=_words("Concurrent RPC limit exceeded!"))
        return False
    message = event[6] if event[0] == _events.UNARY else None
    handler = server._methods.registered(path) if server._methods.is_plain() else None
    if handler is not None and getattr(handler.unary_unary, "_tollfree_inline", False) and message is not None:
        _unary(server, context, handler, message)
        return True
    try:
        server._pool.submit(_handle, server, context, handler, message)
    except RuntimeError as error:
        # The pool was shut down before the server.
        _finish(server, context, grpc.StatusCode.UNAVAILABLE, f"the server's thread pool takes nothing more: {error}")
    return False


def _words(details):
    return _metadata.pack([_metadata.message_pair(details)])


def _handle(server, context, handler, message):
    """Handles a call in a thread of the pool."""
    try:
        if handler is None:
            handler = _found(server, context)
        if handler is None:
            return
        if handler.request_streaming or handler.response_streaming:
            _stream(server, context, handler, message)
        else:
            _unary(server, context, handler, message)
    except BaseException:
        _LOGGER.exception("a call of %s has failed outside its handler", context._path)
        _finish(server, context, grpc.StatusCode.UNKNOWN, "the call has failed outside its handler")


def _found(server, context):
    try:
        handler = server._methods.find(context._path, context.invocation_metadata())
    except Exception as error:
        _LOGGER.exception("Exception servicing handler of %s", context._path)
        _finish(server, context, grpc.StatusCode.UNKNOWN, f"Error in service handler: {error}")
        return None
    if handler is None:
        _finish(server, context, grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    return handler


def _finish(server, context, code, details, headers=None, data=None, compressed=False):
    """Answers a call's end, and forgets the call."""
    number, trailers = context._end(code, details)
    context._served.answer(headers, data, compressed, number, trailers)
    server._calls.end(context)
    context._ends()


class _Failed(Exception):
    """A call ends with this."""

    def __init__(self, code, details):
        super().__init__(details)
        self.code, self.details = code, details


def _request(server, context, handler, message):
    """A message as the handler takes it."""
    try:
        if type(message) is tuple:
            message = _metadata.decompress(message, context._pairs(), server._receive_len_max)
        return _arrays.decoded(_arrays.request_deserializer(handler, context._path), message)
    except _metadata.Undecodable as error:
        raise _Failed(error.code, error.details) from None
    except Exception as error:
        _LOGGER.exception("Exception deserializing request of %s", context._path)
        raise _Failed(grpc.StatusCode.INTERNAL, "Exception deserializing request!") from error


def _response(server, context, handler, response):
    """A handler's message as it goes out, and whether it is compressed."""
    try:
        data = handler.response_serializer(response) if handler.response_serializer else response
    except Exception as error:
        data = _arrays.placed(response)
        if data is not None:
            return _sent(server, context, data)
        _LOGGER.exception("Exception serializing response of %s", context._path)
        raise _Failed(grpc.StatusCode.INTERNAL, "Failed to serialize response!") from error
    return _sent(server, context, data)


def _sent(server, context, data):
    most = server._send_len_max
    if most is not None and len(data) > most:
        raise _Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, f"Sent message larger than max ({len(data)} vs. {most})")
    return context._compressed(data)


def _ended(context, error, path):
    """Code and details of a call whose handler has raised."""
    if isinstance(error, Abort):
        return context._code, context._details or ""
    if isinstance(error, _Failed):
        return error.code, error.details
    if isinstance(error, grpc.RpcError) and context._code is None:
        _LOGGER.exception("Exception calling application: %s", error)
    else:
        _LOGGER.error("Exception calling application of %s: %s", path, error, exc_info=error)
    # What the handler said before it raised goes first, as in grpcio: generated methods that are not written yet do so.
    code = context._code or grpc.StatusCode.UNKNOWN
    details = f"Exception calling application: {error}" if context._details is None else context._details
    return (grpc.StatusCode.UNKNOWN if code is _metadata.OK else code), details


def _unary(server, context, handler, message):
    """One request, one response."""
    headers = data = None
    compressed = False
    try:
        if message is None:
            message = context._served.receive()
            if message is None:
                raise _Failed(grpc.StatusCode.INTERNAL, "the call has no request")
        response = handler.unary_unary(_request(server, context, handler, message), context)
        code, details = context._code or _metadata.OK, context._details
        if code is _metadata.OK or code == 0:
            data, compressed = _response(server, context, handler, response)
            headers = context._take_headers()
    except Exception as error:
        code, details = _ended(context, error, context._path)
        data = None
    _finish(server, context, code, details, headers, data, compressed)


class _Requests:
    """The requests of a stream, as a handler reads them."""

    def __init__(self, server, context, handler, first):
        self._server, self._context, self._handler = server, context, handler
        self._first = first

    def __iter__(self):
        return self

    def __next__(self):
        message, self._first = self._first, None
        if message is None:
            message = self._context._served.receive()
        if message is None:
            if self._context._served.is_over():
                # An upload that was cut is none that has ended.
                raise grpc.RpcError("the call was cancelled")
            raise StopIteration
        return _request(self._server, self._context, self._handler, message)

    next = __next__


def _stream(server, context, handler, message):
    """Calls with a stream on a side at least."""
    served = context._served
    try:
        if handler.request_streaming:
            request = _Requests(server, context, handler, message)
        else:
            message = served.receive() if message is None else message
            if message is None:
                raise _Failed(grpc.StatusCode.INTERNAL, "the call has no request")
            request = _request(server, context, handler, message)
        if not handler.response_streaming:
            response = handler.stream_unary(request, context)
            code, details = context._code or _metadata.OK, context._details
            data = headers = None
            compressed = False
            if code is _metadata.OK or code == 0:
                data, compressed = _response(server, context, handler, response)
                headers = context._take_headers()
            return _finish(server, context, code, details, headers, data, compressed)
        answer = handler.stream_stream if handler.request_streaming else handler.unary_stream
        for response in answer(request, context):
            data, compressed = _response(server, context, handler, response)
            served.answer(context._take_headers(), data, compressed)
            if not served.wait_sent():
                # Nobody hears it any more.
                break
        _finish(server, context, context._code or _metadata.OK, context._details, context._take_headers())
    except Exception as error:
        if served.is_over() and not isinstance(error, (Abort, _Failed)):
            _LOGGER.debug("a call of %s that was cancelled has ended: %s", context._path, error)
            return _finish(server, context, grpc.StatusCode.CANCELLED, "")
        code, details = _ended(context, error, context._path)
        _finish(server, context, code, details)
