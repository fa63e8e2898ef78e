"""A client's call: how it begins, what comes of it, and how it ends."""

import asyncio
import functools
import logging
import time

import grpc

from tollfree import _credentials, _events, _metadata
from tollfree.aio._state import CallState

_LOGGER = logging.getLogger("tollfree")

_CANCELLED = grpc.StatusCode.CANCELLED.value[0]


class ClientState(CallState):
    """See the module."""

    __slots__ = (
        "code",
        "deadline",
        "is_cancelled_here",
        "_headers",
        "_pairs",
        "_trailers",
        "_details",
        "_limit",
        "_callbacks",
        "_calls",
        "_start",
    )

    def __init__(self, bridge, calls, limit, timeout):
        super().__init__(bridge)
        # A number, once the call is over.
        self.code = None
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.is_cancelled_here = False
        self._headers = None
        self._pairs = None
        self._trailers = b""
        self._details = None
        self._limit = limit
        self._callbacks = []
        self._calls = calls
        self._start = None
        calls.add(self)

    # The beginning.

    def begin(self, start):
        """Begins by a function that gives the native call; None of it: the channel was closed."""
        served = start()
        if served is None:
            return self.fail(grpc.StatusCode.CANCELLED, "the channel was closed")
        self.served = served
        self.bridge.receive(served.number, self)
        self.bridge.touched()

    def begin_with(self, credentials, path, timeout, start):
        """The same, once call credentials have given their pairs, which `start` takes."""
        # A task that nobody has is dropped.
        self._start = self.bridge.loop.create_task(self._begin_with(credentials, path, timeout, start))

    async def _begin_with(self, credentials, path, timeout, start):
        try:
            # A plugin may wait for a server of tokens.
            pairs = await self.bridge.loop.run_in_executor(None, _credentials.pairs_of, credentials, path, timeout)
            if not self.is_over:
                self.begin(lambda: start(pairs))
        except _credentials.CredentialsError as error:
            self.fail(error.code, error.details)
        except (TypeError, ValueError) as error:
            self.fail(grpc.StatusCode.UNAVAILABLE, f"call credentials gave metadata that can't be sent: {error}")
        except asyncio.CancelledError:
            self._start = None
            self.cancel("the task that fetched call credentials was cancelled")
            raise
        except Exception as error:
            _LOGGER.exception("call credentials have failed")
            self.fail(grpc.StatusCode.UNAVAILABLE, f"call credentials failed: {error}")
        finally:
            self._start = None
            self.wake()

    def has_begun(self):
        return self.served is not None or self.is_over

    # What comes.

    def take_more(self, kind, event):
        if kind == _events.HEADERS:
            self._headers = event[2]
        elif kind == _events.ENDED:
            self._end(event[2], event[3])

    def _take_message(self, message):
        length = len(message[0] if type(message) is tuple else message)
        if self._limit is not None and length > self._limit:
            return self.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, f"Received message larger than max ({length} vs. {self._limit})")
        super()._take_message(message)

    def has_headers(self):
        return self._headers is not None or self.is_over

    def can_read(self):
        return bool(self.messages) or self.is_over

    def has_ended(self):
        return self.is_over

    def headers(self):
        """Pairs of the answer's headers."""
        if self._pairs is None:
            pairs = _metadata.unpack(self._headers)
            if self._headers is None:
                return pairs
            self._pairs = pairs
        return self._pairs

    def trailers(self):
        return _metadata.unpack(self._trailers)

    def details(self):
        if self._details is None:
            self._details = _metadata.details_of(self.trailers())
        return self._details

    def decompressed(self, message):
        """A message's bytes, or pieces of them; None: the call has failed, since they can't be had."""
        if type(message) is not tuple:
            return message
        try:
            return _metadata.decompress(message, self.headers(), self._limit)
        except _metadata.Undecodable as error:
            self.fail(error.code, error.details)
            return None

    # The end.

    def _end(self, code, trailers):
        self.code, self._trailers = code, trailers
        self._calls.discard(self)
        self.ends()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call_back(callback)

    def _call_back(self, callback):
        try:
            callback()
        except Exception:
            _LOGGER.exception("a callback of a call that is over has failed")

    def when_over(self, callback):
        """Has a callback called when the call is over; at once if it is."""
        if self.is_over:
            self._call_back(callback)
        else:
            self._callbacks.append(callback)

    def fail(self, code, details):
        """Ends the call here, unless it is over, with a status of this end's. A server's success turns into it, too."""
        if self.is_over and self.code != 0:
            return False
        if not self.is_over and self.served is not None:
            self.served.cancel(_CANCELLED)
            self.bridge.touched()
        self._details = details
        self.messages.clear()
        self._end(code.value[0], _metadata.pack([_metadata.message_pair(details)]))
        self.wake()
        return True

    def cancel(self, details):
        """Cancels the call. False: it was over."""
        if self.is_over:
            return False
        self.is_cancelled_here = True
        start, self._start = self._start, None
        if start is not None:
            start.cancel()
        self.fail(grpc.StatusCode.CANCELLED, details)
        return True

    def cancel_from_any_thread(self, details):
        self.bridge.later(functools.partial(self.cancel, details))

    def lose(self):
        if not self.is_over:
            self.is_cancelled_here = True
            self._details = "the event loop was closed"
            self._callbacks.clear()
            self._end(_CANCELLED, b"")
        super().lose()
